// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that wait for processors or for an arena, and what happens to them meanwhile.

use super::*;

/// Its number may be another's by the time that it is given what it waited for.
#[test]
fn who_has_ended_is_not_moved() {
    let (processes, kernel, mut server, _folder) = quiet(By::CgroupV2);
    let (root, holder, waiter) = (processes.id(0), processes.id(1), processes.id(2));
    // Not below the base group, where it would have a group beforehand.
    let session = simulated::Group { processes: [waiter].into(), ..Default::default() };
    kernel.inner.state.lock().unwrap().groups.insert(Path::new(V2).join("user.slice"), session);
    say(&kernel, &mut server, root, join(holder, 3));
    server.turn();
    say(&kernel, &mut server, root, join(waiter, 1));
    (0..3).for_each(|_| server.turn());
    say(&kernel, &mut server, root, Request::Leave.of(holder));
    kernel.world(|world| {
        world.dead.insert(waiter);
        world.moved.clear();
        // Nobody has told the server yet.
        world.tokens.retain(|fd, _| world.pidfds.get(fd) != Some(&waiter));
    });
    server.turn();
    assert!(!kernel.world(|world| world.moved.contains(&waiter)));
    assert!(server.holders().all(|(process, ..)| process != waiter));
}

/// Root's process asks for an arena, by a connection of its own. Has it been sent one, by the second time
/// that it asks?
fn observes(kernel: &Nonsense, server: &mut Server<Nonsense>, root: u32) -> bool {
    let before = kernel.world(|world| world.arenas.len());
    for _ in 0..2 {
        kernel.world(|world| world.clients.clear());
        say(kernel, server, root, Request::Observe);
        // No time passes: somebody speaks in each turn.
        server.turn();
    }
    kernel.world(|world| world.arenas.len()) > before
}

#[test]
fn a_program_that_did_not_wait_for_its_arena_asks_again() {
    let (processes, kernel, mut server, _folder) = quiet(By::Affinity);
    let root = processes.id(0);
    kernel.world(|world| (world.one_image, world.deaf) = (true, true));
    assert!(!observes(&kernel, &mut server, root));
    kernel.world(|world| world.deaf = false);
    assert!(observes(&kernel, &mut server, root), "what was not sent is not lent");
    assert!(!observes(&kernel, &mut server, root), "it may still be about to take it");
    let later = kernel.now() + Duration::from_secs(2);
    while kernel.now() < later {
        server.turn();
    }
    assert!(observes(&kernel, &mut server, root), "it has gone without it");
    let taken: File = kernel.world(|world| world.arenas.pop()).unwrap().into();
    let at = std::mem::offset_of!(abi::Arena, magic) as u64;
    std::os::unix::fs::FileExt::write_all_at(&taken, &abi::MAGIC.to_ne_bytes(), at).unwrap();
    let later = kernel.now() + Duration::from_secs(2);
    while kernel.now() < later {
        server.turn();
    }
    assert!(!observes(&kernel, &mut server, root), "the image has one");
}

/// As an administrator does with a session.
#[test]
fn who_is_moved_elsewhere_while_it_waits_stays_there() {
    let (processes, kernel, mut server, _folder) = quiet(By::CgroupV1);
    let (root, holder, waiter) = (processes.id(0), processes.id(1), processes.id(2));
    say(&kernel, &mut server, root, join(holder, 3));
    server.turn();
    say(&kernel, &mut server, root, join(waiter, 1));
    (0..6).for_each(|_| server.turn());
    let own = Path::new(V1).join(format!("wakeful-{waiter}"));
    let elsewhere = Path::new(V1).join("elsewhere");
    {
        let groups = &mut kernel.inner.state.lock().unwrap().groups;
        assert!(groups.get_mut(&own).unwrap().processes.remove(&waiter), "it is ready");
        let group = simulated::Group { processes: [waiter].into(), ..groups[Path::new(V1)].clone() };
        groups.insert(elsewhere.clone(), group);
    }
    let later = kernel.now() + Duration::from_secs(5);
    while kernel.now() < later {
        server.turn();
    }
    assert!(kernel.inner.state.lock().unwrap().groups[&elsewhere].processes.contains(&waiter));
}

/// Who ends while the server makes its arena has asked in vain. That is no failure of the server's, which
/// any user could have it write down.
#[test]
fn who_ends_while_it_asks_for_an_arena_is_no_failure() {
    let (processes, kernel, mut server, _folder) = quiet(By::CgroupV1);
    let root = processes.id(0);
    kernel.world(|world| world.dying = Some(root));
    say(&kernel, &mut server, root, Request::Observe);
    (0..3).for_each(|_| server.turn());
    assert_eq!(kernel.world(|world| world.refused.clone()), [Refusal::NoProcess]);
}
