//! What terminals ask for: the mix of transactions and their parameters.
//!
//! # References
//! TPC-C 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1 (inputs), 2.7.4.2 (parts of a delivery), 5.2.4.2 (a deck of cards for the mix).

use std::ops::RangeInclusive;

use crate::bsbm::random::{Random, Stream};
use crate::tpcc::laws::{self, Constants};
use crate::tpcc::{DISTRICTS, Scale};

/// The five transactions.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Kind {
    /// All, in the order in which they are told, with how many of a hundred they are.
    pub(super) const ALL: [(Self, &'static str, usize); 5] = [
        (Self::NewOrder, "new-order", 45),
        (Self::Payment, "payment", 43),
        (Self::OrderStatus, "order-status", 4),
        (Self::Delivery, "delivery", 4),
        (Self::StockLevel, "stock-level", 4),
    ];
}

/// A transaction to be done.
#[derive(Clone, Debug)]
pub(super) enum Input {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
}

#[derive(Clone, Debug)]
pub(super) struct NewOrder {
    pub(super) warehouse: u64,
    pub(super) district: u64,
    pub(super) customer: u64,
    /// Different items. The last one of an order that is to be rolled back does not exist.
    pub(super) lines: Vec<Line>,
    pub(super) time: String,
    /// What the client knows the order by.
    pub(super) mark: String,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// From 1.
    pub(super) number: u64,
    pub(super) item: u64,
    pub(super) supply: u64,
    pub(super) quantity: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Payment {
    pub(super) warehouse: u64,
    pub(super) district: u64,
    pub(super) customer: Customer,
    pub(super) cents: u64,
    pub(super) time: String,
    /// A name that no other payment has.
    pub(super) name: String,
}

/// A customer, where he belongs to.
#[derive(Clone, Debug)]
pub(super) struct Customer {
    pub(super) warehouse: u64,
    pub(super) district: u64,
    pub(super) who: Who,
}

#[derive(Clone, Debug)]
pub(super) enum Who {
    Number(u64),
    /// The one in the middle of those with a last name.
    Last(String),
}

#[derive(Clone, Debug)]
pub(super) struct OrderStatus {
    pub(super) customer: Customer,
}

#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) warehouse: u64,
    /// One after the other.
    pub(super) districts: RangeInclusive<u64>,
    pub(super) carrier: u64,
    pub(super) time: String,
}

#[derive(Clone, Debug)]
pub(super) struct StockLevel {
    pub(super) warehouse: u64,
    pub(super) district: u64,
    pub(super) threshold: u64,
}

impl Input {
    /// What is a transaction of the database each: of a delivery every district, as the standard allows (2.7.4.2). Together
    /// they would read what waits in all districts, and somebody's new order in one of them would be in the way of all.
    pub(super) fn parts(&self) -> Vec<Self> {
        match self {
            Self::Delivery(delivery) => {
                let parts = delivery.districts.clone().map(|district| {
                    Self::Delivery(Delivery {
                        districts: district..=district,
                        ..delivery.clone()
                    })
                });
                parts.collect()
            }
            other => vec![other.clone()],
        }
    }
}

/// Draws what one client asks for.
#[derive(Debug)]
pub(super) struct Terminal {
    scale: Scale,
    warehouse: u64,
    /// Of stock-level, always the same.
    district: u64,
    constants: Constants,
    random: Random,
    deck: Vec<Kind>,
    /// Begins the names that this client gives.
    name: String,
    given: u64,
}

impl Terminal {
    /// `run` is a name that no other run on the same data has; `client` counts from 0. Clients are spread over the warehouses
    /// and their districts.
    pub(super) fn new(
        scale: Scale,
        constants: Constants,
        run: &str,
        client: u64,
        seed: u64,
    ) -> Self {
        Self {
            scale,
            warehouse: client % scale.warehouses + 1,
            district: client / scale.warehouses % DISTRICTS + 1,
            constants,
            random: Random::new(seed, Stream::Terminal, client + 1),
            deck: Vec::new(),
            name: format!("{run}-{client}"),
            given: 0,
        }
    }

    /// The next transaction, at a time that is written as a dateTime.
    pub(super) fn next(&mut self, time: &str) -> (Kind, Input) {
        if self.deck.is_empty() {
            for (kind, _, share) in Kind::ALL {
                self.deck.extend(std::iter::repeat_n(kind, share));
            }
            laws::shuffle(&mut self.random, &mut self.deck);
        }
        let kind = self.deck.pop().unwrap_or(Kind::NewOrder);
        let time = time.to_owned();
        let input = match kind {
            Kind::NewOrder => Input::NewOrder(self.new_order(time)),
            Kind::Payment => Input::Payment(self.payment(time)),
            Kind::OrderStatus => Input::OrderStatus(OrderStatus {
                customer: self.customer(self.warehouse),
            }),
            Kind::Delivery => Input::Delivery(Delivery {
                warehouse: self.warehouse,
                districts: 1..=DISTRICTS,
                carrier: self.random.between(1, 10),
                time,
            }),
            Kind::StockLevel => Input::StockLevel(StockLevel {
                warehouse: self.warehouse,
                district: self.district,
                threshold: self.random.between(10, 20),
            }),
        };
        (kind, input)
    }

    fn new_order(&mut self, time: String) -> NewOrder {
        let district = self.random.between(1, DISTRICTS);
        let customers = self.scale.customers;
        let customer = self.constants.customer(&mut self.random, customers);
        let count = self.random.between(5, 15);
        let rolled_back = self.random.below(100) == 0;
        let mut lines: Vec<Line> = Vec::new();
        for number in 1..=count {
            let item = loop {
                let item = self.constants.item(&mut self.random, self.scale.items);
                if lines.iter().all(|line| line.item != item) {
                    break item;
                }
            };
            lines.push(Line {
                number,
                item: if rolled_back && number == count {
                    self.scale.items + 1
                } else {
                    item
                },
                supply: if self.random.below(100) == 0 {
                    self.other_warehouse()
                } else {
                    self.warehouse
                },
                quantity: self.random.between(1, 10),
            });
        }
        NewOrder {
            warehouse: self.warehouse,
            district,
            customer,
            lines,
            time,
            mark: self.own_name(),
        }
    }

    fn payment(&mut self, time: String) -> Payment {
        let district = self.random.between(1, DISTRICTS);
        let customer = if self.random.below(100) < 85 {
            Customer {
                district,
                ..self.customer(self.warehouse)
            }
        } else {
            let other = self.other_warehouse();
            self.customer(other)
        };
        Payment {
            warehouse: self.warehouse,
            district,
            customer,
            cents: self.random.between(100, 500_000),
            time,
            name: self.own_name(),
        }
    }

    /// A customer of a warehouse, by name in 60 of 100 cases.
    fn customer(&mut self, warehouse: u64) -> Customer {
        let district = self.random.between(1, DISTRICTS);
        let who = if self.random.below(100) < 60 {
            let names = self.scale.last_names();
            let number = self.constants.last_name(&mut self.random, names);
            Who::Last(laws::last_name(number))
        } else {
            let customers = self.scale.customers;
            Who::Number(self.constants.customer(&mut self.random, customers))
        };
        Customer {
            warehouse,
            district,
            who,
        }
    }

    /// A warehouse other than the own, if there is one.
    fn other_warehouse(&mut self) -> u64 {
        if self.scale.warehouses == 1 {
            return self.warehouse;
        }
        let other = self.random.between(1, self.scale.warehouses - 1);
        other + u64::from(other >= self.warehouse)
    }

    fn own_name(&mut self) -> String {
        self.given += 1;
        format!("{}-{}", self.name, self.given)
    }
}
