// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and answers on the wire: what is sent is what is heard, and whatever comes is heard as one thing.

use abi::server::*;
use abi::{MAX_PROCESSORS, Processors};
use proptest::prelude::*;

const REFUSALS: [Refusal; 14] = {
    use Refusal::*;
    [
        Malformed, Disordered, TooMany, Unknown, NotAllowed, Share, Priority, Crowd, NoProcess, Failed,
        NoObserver, Again, Elsewhere, Later,
    ]
};
const ENFORCEMENTS: [Enforcement; 3] = [Enforcement::CgroupV2, Enforcement::CgroupV1, Enforcement::Affinity];

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 0u32..3, 1 => Just(u32::MAX), 3 => any::<u32>()]
}

fn demand() -> impl Strategy<Value = Demand> {
    [number(), number(), number(), number()]
        .prop_map(|[priority, least, wanted, most]| Demand::new(priority, least, wanted, most))
}

fn processors() -> impl Strategy<Value = Processors> {
    any::<[u64; MAX_PROCESSORS / 64]>().prop_map(Processors::from_words)
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        demand().prop_map(Request::Join),
        number().prop_map(Request::Spare),
        Just(Request::WantBack),
        Just(Request::Leave),
        Just(Request::Status),
        Just(Request::Observe),
    ]
}

prop_compose! {
    fn state()(
        demand in demand(),
        ids in processors(),
        [process, user, spare, holds, lacks, behind, generation] in any::<[u32; 7]>(),
    ) -> State {
        State { process, user, demand, spare, holds, lacks, behind, generation, ids }
    }
}

prop_compose! {
    fn entry()(
        state in state(),
        is_member in any::<bool>(),
        threads in proptest::option::of(any::<[u32; THREADS.len()]>()),
    ) -> Entry {
        let program = match is_member {
            true => Listed::Member(state),
            false => Listed::Observed { process: state.process, user: state.user },
        };
        Entry { program, threads: threads.map(Threads::from_values) }
    }
}

prop_compose! {
    fn summary()(
        enforcement in proptest::sample::select(&ENFORCEMENTS[..]),
        default_partition in processors(),
        [applications, making, unlisted] in any::<[u32; 3]>(),
        observer in any::<bool>(),
        counters in any::<[u64; COUNTERS.len()]>(),
    ) -> Summary {
        let counters = Counters::from_values(counters);
        Summary { enforcement, default_partition, applications, making, unlisted, observer, counters }
    }
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        state().prop_map(Reply::State),
        (proptest::sample::select(&REFUSALS[..]), number())
            .prop_map(|(why, limit)| Reply::Refused { why, limit }),
        entry().prop_map(Reply::Entry),
        summary().prop_map(Reply::Summary),
        number().prop_map(|process| Reply::Observed { process }),
    ]
}

/// Nonsense, most of which looks like a message.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![8 => (0u32..24).prop_map(u32::to_ne_bytes), 1 => any::<[u8; 4]>()];
    let words = prop::collection::vec(word, SIZE / 4).prop_map(|words| words.concat());
    let heads = words.prop_map(|mut bytes| {
        bytes[..4].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[4..8].copy_from_slice(&VERSION.to_ne_bytes());
        bytes
    });
    prop_oneof![8 => heads, 1 => prop::collection::vec(any::<u8>(), 0..SIZE * 2)]
}

/// Heard as `all`; and so it is if it is sent again.
fn heard<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Option<T>,
    encode: impl Fn(&T) -> Packet,
) -> Result<bool, TestCaseError> {
    let Some(one) = decode(bytes) else { return Ok(false) };
    prop_assert_eq!(bytes.len(), SIZE);
    let again = decode(encode(&one).bytes());
    prop_assert_eq!(again.as_ref(), Some(&one));
    Ok(true)
}

proptest! {
    #[test]
    fn what_is_asked_is_heard(request in request(), tag in number(), process in number()) {
        let envelope = Envelope { tag, process, request };
        let packet = envelope.encode();
        prop_assert_eq!(Envelope::decode(packet.bytes()), Some(envelope));
        prop_assert_eq!(Answer::decode(packet.bytes()), None, "a request is no answer");
    }

    #[test]
    fn what_is_answered_is_heard(reply in reply(), tag in number()) {
        let answer = Answer { tag, reply };
        let packet = answer.encode();
        prop_assert_eq!(Answer::decode(packet.bytes()), Some(answer));
        prop_assert_eq!(Envelope::decode(packet.bytes()), None, "an answer is no request");
    }

    #[test]
    fn whatever_comes_is_one_thing_or_nothing(bytes in packet()) {
        let asked = heard(&bytes, Envelope::decode, Envelope::encode)?;
        let answered = heard(&bytes, Answer::decode, Answer::encode)?;
        prop_assert!(!(asked && answered));
    }

    /// Where it lies, another size, magic number or version.
    #[test]
    fn only_a_whole_packet_of_this_version_is_heard(
        request in request(), offset in 0usize..8, at in 0usize..8, change in 1u8..,
    ) {
        let (envelope, mut room) = (request.of(7), [0u8; SIZE + 8]);
        let bytes = &mut room[offset..][..SIZE];
        bytes.copy_from_slice(envelope.encode().bytes());
        prop_assert_eq!(Envelope::decode(bytes), Some(envelope));
        prop_assert_eq!(Envelope::decode(&bytes[..SIZE - 1]), None);
        bytes[at] ^= change;
        prop_assert_eq!(Envelope::decode(bytes), None);
    }

    #[test]
    fn a_set_of_processors_has_those_that_were_put_in(
        numbers in prop::collection::btree_set(0..MAX_PROCESSORS as u32, 0..40),
        other in number(),
    ) {
        let set: Processors = numbers.iter().copied().collect();
        prop_assert!(set.iter().eq(numbers.iter().copied()));
        prop_assert_eq!((set.count() as usize, set.is_empty()), (numbers.len(), numbers.is_empty()));
        prop_assert_eq!(set.contains(other), numbers.contains(&other));
        let (mut more, is_new) = (set, other < MAX_PROCESSORS as u32 && !numbers.contains(&other));
        prop_assert_eq!((more.insert(other), more == set), (is_new, !is_new));
        prop_assert_eq!(Processors::from_words(*set.words()), set);
    }
}

/// Of a packet, the words that are not 0: where they lie, in words of 4 bytes, and what they are.
fn words(packet: &Packet) -> Vec<(usize, u32)> {
    let words = packet.bytes().chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
    words.enumerate().filter(|&(_, word)| word != 0).collect()
}

fn head(kind: u32, tag: u32) -> Vec<(usize, u32)> {
    vec![(0, 0x5653_574b), (1, 3), (2, kind), (3, tag)]
}

/// Programs and servers of one version need not be of one build.
#[test]
fn the_bytes_of_requests_are_these() {
    let join = Envelope { tag: 9, ..Request::Join(Demand::new(5, 1, 2, 3)).of(77) };
    assert_eq!(words(&join.encode()), [head(1, 9), vec![(4, 77), (5, 5), (6, 1), (7, 2), (8, 3)]].concat());
    let spare = Envelope { tag: 8, ..Request::Spare(4).of(0) };
    assert_eq!(words(&spare.encode()), [head(2, 8), vec![(9, 4)]].concat());
    let others = [(3, Request::WantBack), (4, Request::Leave), (5, Request::Status), (6, Request::Observe)];
    for (kind, request) in others {
        assert_eq!(words(&Envelope { tag: 7, ..request.of(0) }.encode()), head(kind, 7));
    }
}

#[test]
fn the_bytes_of_answers_are_these() {
    let ids: Processors = [0, 33, 1023].into_iter().collect();
    let demand = Demand::new(5, 1, 2, 3);
    let (process, user, generation) = (77, 1000, 12);
    let state = State { process, user, demand, spare: 4, holds: 3, lacks: 6, behind: 7, generation, ids };
    let body = [(4, 77), (5, 5), (6, 1), (7, 2), (8, 3), (9, 4), (10, 3), (11, 6), (12, 7), (13, 12)];
    let ids = [(18, 1), (19, 2), (49, 1 << 31)];
    let answer = Answer { tag: 9, reply: Reply::State(state) };
    assert_eq!(words(&answer.encode()), [&head(16, 9)[..], &body, &[(15, 1000)], &ids].concat());
    let threads = Some(Threads::from_values([1, 2, 3, 4, 5, 6, 7, 8]));
    let reply = Reply::Entry(Entry { program: Listed::Observed { process, user }, threads });
    let body = (68..76).zip(1..).collect::<Vec<_>>();
    let answer = Answer { tag: 9, reply }.encode();
    assert_eq!(words(&answer), [&head(18, 9)[..], &[(4, 77), (14, 4), (15, 1000), (16, 1)], &body].concat());
    let reply = Reply::Refused { why: Refusal::Share, limit: 2 };
    assert_eq!(words(&Answer { tag: 9, reply }.encode()), [&head(17, 9)[..], &[(8, 2), (14, 6)]].concat());
    let reply = Reply::Observed { process };
    assert_eq!(words(&Answer { tag: 9, reply }.encode()), [&head(20, 9)[..], &[(4, 77)]].concat());
    let reply = Reply::Summary(Summary {
        enforcement: Enforcement::CgroupV1,
        default_partition: [33].into_iter().collect(),
        applications: 4,
        making: 5,
        unlisted: 6,
        observer: true,
        counters: Counters::from_values([1, 2, 3, 4, 5, 6, 7, 8, 9]),
    });
    let body = [(9, 4), (10, 1), (11, 5), (12, 6), (14, 2), (16, 1), (19, 2)];
    // Words of 8 bytes.
    let counters = (50..68).step_by(2).zip(1..).collect::<Vec<_>>();
    assert_eq!(words(&Answer { tag: 9, reply }.encode()), [&head(19, 9)[..], &body, &counters].concat());
}

#[test]
fn what_nobody_knows_has_a_meaning() {
    assert_eq!([0, 10, 15, u32::MAX].map(Refusal::from_u32), [Refusal::Failed; 4]);
    assert_eq!([0, 3, 4, u32::MAX].map(Enforcement::from_u32), [Enforcement::Affinity; 4]);
    assert!(REFUSALS.iter().all(|&why| Refusal::from_u32(why as u32) == why));
    assert_eq!(Demand::new(3, 0, 0, 0).numbers, None);
}

#[test]
fn a_set_of_processors_is_shown_as_the_kernel_shows_it() {
    let shown = |numbers: &[u32]| numbers.iter().copied().collect::<Processors>().to_string();
    assert_eq!(shown(&[]), "");
    assert_eq!(shown(&[0]), "0");
    assert_eq!(shown(&[128, 0, 1, 2, 5]), "0-2,5,128");
    assert_eq!(shown(&[62, 63, 64, 65, 1022, 1023, 1024]), "62-65,1022-1023");
}
