//! How much one client may hold at once of what a server has few of: open transactions and feeds.
//!
//! A client is the address that a connection comes from; of IPv6 its first 64 bits, since whoever has one address
//! there has all of them. The token names no client: there is one for all who write. Clients behind a proxy share the
//! proxy's address, and with it these limits: what a header such as `X-Forwarded-For` says, anybody can write.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, MutexGuard, PoisonError};

use hyper::StatusCode;
use stoa_database::sync::Mutex;

use super::problem::Problem;

/// The bits of an address of IPv6 that tell one client from others.
const V6_CLIENT_BITS: u32 = 64;

/// Who is on the other side of a connection.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct ClientAddress(IpAddr);

impl ClientAddress {
    pub(super) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) >> V6_CLIENT_BITS << V6_CLIENT_BITS;
                IpAddr::V6(Ipv6Addr::from(network))
            }
            address => address,
        })
    }
}

/// The places of each client, at most `max`.
#[derive(Debug)]
pub(crate) struct ClientPlaces {
    /// What a place is for, in the plural.
    what: &'static str,
    /// What a client without a free place can do.
    advice: &'static str,
    max: usize,
    taken: Arc<Taken>,
}

#[derive(Debug, Default)]
struct Taken(Mutex<BTreeMap<ClientAddress, usize>>);

impl Taken {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClientAddress, usize>> {
        // Nothing panics while it is not whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place of a client, until it is dropped.
#[derive(Debug)]
pub(super) struct ClientPlace {
    client: ClientAddress,
    taken: Arc<Taken>,
}

impl ClientPlaces {
    pub(crate) fn new(what: &'static str, advice: &'static str, max: usize) -> Self {
        Self {
            what,
            advice,
            max,
            taken: Arc::default(),
        }
    }

    /// Takes a place.
    ///
    /// # Errors
    /// 429 if the client has all that it may have.
    pub(super) fn take(&self, client: ClientAddress) -> Result<ClientPlace, Problem> {
        let mut taken = self.taken.lock();
        let count = taken.entry(client).or_default();
        if *count >= self.max {
            let (what, advice, max) = (self.what, self.advice, self.max);
            return Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-many",
                format!("this client has {max} {what}, and may have no more; {advice}"),
            ));
        }
        *count += 1;
        drop(taken);
        Ok(ClientPlace {
            client,
            taken: Arc::clone(&self.taken),
        })
    }
}

impl ClientPlace {
    /// How many places its client has.
    pub(super) fn count(&self) -> usize {
        let taken = self.taken.lock();
        taken.get(&self.client).copied().unwrap_or_default()
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        if let Some(count) = taken.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> ClientAddress {
        ClientAddress::of(address.parse().unwrap())
    }

    #[test]
    fn each_client_has_its_own_places() {
        let places = ClientPlaces::new("open doors", "close one", 2);
        let (one, other) = (client("127.0.0.1"), client("127.0.0.2"));
        let held = [places.take(one).unwrap(), places.take(one).unwrap()];
        assert_eq!(held[0].count(), 2);
        let problem = places.take(one).unwrap_err();
        assert_eq!(problem.status, 429);
        assert_eq!(
            problem.detail,
            "this client has 2 open doors, and may have no more; close one"
        );
        drop(places.take(other).unwrap());
        drop(held);
        drop(places.take(one).unwrap());
        assert!(places.taken.lock().is_empty());
    }

    #[test]
    fn a_client_is_an_address_or_a_network_of_ipv6() {
        assert_eq!(client("::ffff:10.0.0.1"), client("10.0.0.1"));
        assert_ne!(client("10.0.0.1"), client("10.0.0.2"));
        assert_eq!(client("2001:db8:1:2::3"), client("2001:db8:1:2:ffff::4"));
        assert_ne!(client("2001:db8:1:2::3"), client("2001:db8:1:3::3"));
    }
}
