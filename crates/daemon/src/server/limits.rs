// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits: what the administrator allows of a request, and what one user's programs leave to the next.

use std::collections::{BTreeSet, HashMap};

use abi::server::{self, Refusal};
use policy::{Adopted, Count, Demand, Event, Id};

use super::{ROOT, Refused, Server};
use crate::kernel::Kernel;

impl<K: Kernel> Server<K> {
    /// What the administrator allows of a request.
    pub(super) fn check(
        &self,
        demand: server::Demand,
        user: u32,
        by_root: bool,
        known: Option<Id>,
    ) -> Result<Demand, Refused> {
        let priority = demand.priority;
        let count = demand.numbers.map_or(Count::Choose { most: u32::MAX }, |numbers| Count::Numbers {
            least: numbers.least(),
            wanted: numbers.wanted(),
            most: numbers.most(),
        });
        if by_root {
            return Ok(Demand { priority: priority | ROOT, count });
        }
        let access = &self.config.access;
        if !self.config.allows(user) {
            return Err((Refusal::NotAllowed, 0));
        }
        if priority > access.priority.min(!ROOT) {
            return Err((Refusal::Priority, access.priority));
        }
        let account = self.owners.of(user);
        let asks = |id: Id| Some(id) != known && self.system.application(id).is_some();
        let theirs = || self.members.iter().filter(|&(&id, member)| member.account == account && asks(id));
        if theirs().count() >= access.applications as usize {
            return Err((Refusal::Crowd, 0));
        }
        let used: u32 = theirs().map(|(&id, _)| self.reserves(id)).fold(0, u32::saturating_add);
        let share = self.share();
        let others = |id: Id| Some(id) != known && !self.members[&id].root;
        let of_all = self.members.keys().filter(|&&id| others(id)).map(|&id| self.reserves(id));
        let of_all = of_all.fold(0, u32::saturating_add);
        let left = share.saturating_sub(used).min(self.all_users_share().saturating_sub(of_all));
        fit(count, left).map(|count| Demand { priority, count }).ok_or((Refusal::Share, share))
    }

    /// The limits hold for members of an earlier server too: the configuration may be another one, and a
    /// block be there that could not be removed. Of those that have no room the membership alone is left.
    pub(super) fn bind(&self, all: Vec<Adopted>) -> Vec<Adopted> {
        let (mut of_users, mut of_all) = (HashMap::<u32, u32>::new(), 0u32);
        // Whoever root has asked for is not bound, but leaves less to the others.
        let is_bound = |adopted: &Adopted| adopted.demand.priority < ROOT && !self.members[&adopted.id].root;
        let (bound, free): (Vec<_>, Vec<_>) = all.into_iter().partition(is_bound);
        let mut kept = Vec::new();
        for mut adopted in free.into_iter().chain(bound) {
            let member = &self.members[&adopted.id];
            let of_user = of_users.entry(member.account).or_default();
            if is_bound(&adopted) {
                let left =
                    self.share().saturating_sub(*of_user).min(self.all_users_share().saturating_sub(of_all));
                let Some(count) = fit(adopted.demand.count, left) else { continue };
                adopted.demand.count = count;
            }
            let number = reserved(adopted.demand.count);
            *of_user = of_user.saturating_add(number);
            of_all = of_all.saturating_add(if member.root { 0 } else { number });
            kept.push(adopted);
        }
        kept
    }

    /// What the programs of one user may have together.
    pub(super) fn share(&self) -> u32 {
        (f64::from(self.system.machine().count()) * self.config.access.processors).floor().max(1.0) as u32
    }

    /// What those of all users but root may have.
    pub(super) fn all_users_share(&self) -> u32 {
        (f64::from(self.system.machine().count()) * self.config.access.all_processors).floor().max(1.0) as u32
    }

    /// What cannot be another's of the same user, if it is not root.
    fn reserves(&self, id: Id) -> u32 {
        self.system.application(id).map_or(0, |application| reserved(application.demand.count))
    }

    /// Divides what a user's other programs leave of the user's share among those that leave the number to
    /// us; and before that, what there is for such programs among their users.
    pub(super) fn level(&mut self) {
        let users: BTreeSet<u32> = self.members.values().map(|member| member.account).collect();
        users.into_iter().for_each(|account| self.level_user(account));
    }

    fn level_user(&mut self, account: u32) {
        let theirs =
            || self.members.iter().filter(|(_, member)| member.account == account).map(|(&id, _)| id);
        // For whom root has asked may have as many as there are.
        let most_of = |id: Id| match self.system.application(id)?.demand.count {
            Count::Choose { most } if most != u32::MAX => Some(most),
            _ => None,
        };
        let level: Vec<(Id, u32)> = theirs().filter_map(|id| Some((id, most_of(id)?))).collect();
        let number = level.len() as u32;
        let used = theirs().map(|id| self.reserves(id)).fold(0, u32::saturating_add).saturating_sub(number);
        let others = self.members.iter().filter(|(_, member)| !member.root && member.account != account);
        let of_others = others.map(|(&id, _)| self.reserves(id)).fold(used, u32::saturating_add);
        let left = self.all_users_share().saturating_sub(of_others);
        // A user with many programs has no more than one with few.
        let choose = self.members.iter().filter(|&(&id, _)| most_of(id).is_some());
        let users = choose.map(|(_, member)| member.account).collect::<BTreeSet<_>>().len().max(1) as u32;
        let fair = self.all_users_share() / users;
        let rest = self.share().saturating_sub(used).min(left).min(fair).max(number);
        for ((id, most), index) in level.into_iter().zip(0..) {
            let limit = rest / number + u32::from(index < rest % number);
            if limit != most {
                let _ = self.apply(Event::Limit(id, limit));
                self.save(id);
            }
        }
    }
}

/// What cannot be another's of the same user.
fn reserved(count: Count) -> u32 {
    match count {
        Count::Numbers { most, .. } => most,
        Count::Choose { .. } => 1,
    }
}

/// What of it can be had if there are so many left.
fn fit(count: Count, left: u32) -> Option<Count> {
    match count {
        // Until `level`.
        Count::Choose { most } if left > 0 => Some(Count::Choose { most: most.min(left) }),
        Count::Numbers { least, wanted, most } if least <= left => {
            Some(Count::Numbers { least, wanted: wanted.min(left), most: most.min(left) })
        }
        _ => None,
    }
}
