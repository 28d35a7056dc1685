//! `stoa-bench generate tpcc`: what the database has before the first transaction.
//!
//! Items come first, then one warehouse after the other, each with random numbers of its own.
//!
//! # Limits
//! Memory: a block of about a megabyte, and the numbers of a district's customers.
//!
//! # References
//! TPC-C 4.3.3.1.

use super::laws::{self, Constants, LAST_NAMES};
use super::{
    DISTRICTS, Scale, VOCABULARY, customer, district, history, info, item, line, money, order,
    stock, warehouse,
};
use crate::bsbm::random::{Random, Stream};
use crate::graphs::{Common, Triples};

/// What `stoa-bench generate tpcc` takes.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    scale: Scale,
    #[command(flatten)]
    common: Common,
}

/// When everything happened that had happened before the first transaction.
const BEFORE: &str = "2026-01-01T00:00:00";

/// # Errors
/// When the data cannot be written.
pub(crate) fn generate(arguments: &Arguments) -> anyhow::Result<()> {
    let mut triples = Triples::open(&arguments.common)?;
    write(arguments.scale, arguments.common.seed, &mut triples)?;
    triples.end()
}

/// Writes the whole population.
pub(crate) fn write(scale: Scale, seed: u64, triples: &mut Triples) -> anyhow::Result<()> {
    let mut writer = Writer {
        triples,
        random: Random::new(seed, Stream::Warehouse, 0),
        subject: String::new(),
    };
    writer.items(scale.items)?;
    for number in 1..=scale.warehouses {
        writer.random = Random::new(seed, Stream::Warehouse, number);
        writer.warehouse(number)?;
        writer.stock(number, scale.items)?;
        for district in 1..=DISTRICTS {
            writer.district(number, district, scale)?;
            writer.customers(number, district, scale)?;
            writer.orders(number, district, scale)?;
        }
    }
    Ok(())
}

/// Writes the triples of one node after the other.
struct Writer<'a> {
    triples: &'a mut Triples,
    random: Random,
    subject: String,
}

impl Writer<'_> {
    /// A triple of the node; `object` is written as N-Triples have it.
    fn add(&mut self, predicate: &str, object: &str) -> anyhow::Result<()> {
        let predicate = format!("<{VOCABULARY}{predicate}>");
        self.triples.add(&self.subject, &predicate, object)
    }

    /// A text that needs no escapes.
    fn text(&mut self, predicate: &str, text: &str) -> anyhow::Result<()> {
        self.add(predicate, &format!("\"{text}\""))
    }

    fn typed(&mut self, predicate: &str, text: &str, datatype: &str) -> anyhow::Result<()> {
        let object = format!("\"{text}\"^^<http://www.w3.org/2001/XMLSchema#{datatype}>");
        self.add(predicate, &object)
    }

    fn integer(&mut self, predicate: &str, value: u64) -> anyhow::Result<()> {
        self.typed(predicate, &value.to_string(), "integer")
    }

    fn money(&mut self, predicate: &str, cents: u64) -> anyhow::Result<()> {
        self.typed(predicate, &money(cents), "decimal")
    }

    /// A share from 0 to `most` ten thousandths.
    fn share(&mut self, predicate: &str, most: u64) -> anyhow::Result<()> {
        let share = self.random.between(0, most);
        self.typed(predicate, &format!("0.{share:04}"), "decimal")
    }

    fn letters(&mut self, predicate: &str, low: u64, high: u64) -> anyhow::Result<()> {
        let text = laws::letters(&mut self.random, low, high);
        self.text(predicate, &text)
    }

    fn original(&mut self, predicate: &str) -> anyhow::Result<()> {
        let text = laws::original(&mut self.random, 26, 50);
        self.text(predicate, &text)
    }

    fn before(&mut self, predicate: &str) -> anyhow::Result<()> {
        self.typed(predicate, BEFORE, "dateTime")
    }

    fn address(&mut self) -> anyhow::Result<()> {
        for name in ["street1", "street2", "city"] {
            self.letters(name, 10, 20)?;
        }
        self.letters("state", 2, 2)?;
        let zip = laws::digits(&mut self.random, 4);
        self.text("zip", &format!("{zip}11111"))
    }

    fn items(&mut self, count: u64) -> anyhow::Result<()> {
        for number in 1..=count {
            self.subject = item(number);
            let image = self.random.between(1, 10_000);
            self.integer("image", image)?;
            self.letters("name", 14, 24)?;
            let price = self.random.between(100, 10_000);
            self.money("price", price)?;
            self.original("data")?;
        }
        Ok(())
    }

    fn warehouse(&mut self, number: u64) -> anyhow::Result<()> {
        self.subject = warehouse(number);
        self.letters("name", 6, 10)?;
        self.address()?;
        self.share("tax", 2_000)?;
        // What its districts have together.
        self.money("ytd", DISTRICTS * 3_000_000)
    }

    fn stock(&mut self, number: u64, items: u64) -> anyhow::Result<()> {
        for of in 1..=items {
            self.subject = stock(number, of);
            self.add("stocks", &item(of))?;
            self.add("stockOf", &warehouse(number))?;
            let quantity = self.random.between(10, 100);
            self.integer("quantity", quantity)?;
            for district in 1..=DISTRICTS {
                self.letters(&info(district), 24, 24)?;
            }
            for count in ["ytd", "orders", "remote"] {
                self.integer(count, 0)?;
            }
            self.original("data")?;
        }
        Ok(())
    }

    fn district(&mut self, of: u64, number: u64, scale: Scale) -> anyhow::Result<()> {
        self.subject = district(of, number);
        self.add("warehouse", &warehouse(of))?;
        self.letters("name", 6, 10)?;
        self.address()?;
        self.share("tax", 2_000)?;
        self.money("ytd", 3_000_000)?;
        self.integer("next", scale.customers + 1)
    }

    fn customers(&mut self, of: u64, district_number: u64, scale: Scale) -> anyhow::Result<()> {
        let district = district(of, district_number);
        for number in 1..=scale.customers {
            let customer = customer(of, district_number, number);
            self.subject.clone_from(&customer);
            self.add("district", &district)?;
            let last = if number <= LAST_NAMES {
                number - 1
            } else {
                Constants::POPULATION.last_name(&mut self.random, LAST_NAMES)
            };
            self.text("last", &laws::last_name(last))?;
            self.text("middle", "OE")?;
            self.letters("first", 8, 16)?;
            self.address()?;
            let phone = laws::digits(&mut self.random, 16);
            self.text("phone", &phone)?;
            self.before("since")?;
            let credit = if self.random.below(10) == 0 {
                "BC"
            } else {
                "GC"
            };
            self.text("credit", credit)?;
            self.money("creditLimit", 5_000_000)?;
            self.share("discount", 5_000)?;
            self.typed("balance", "-10.00", "decimal")?;
            self.money("paid", 1_000)?;
            self.integer("payments", 1)?;
            self.integer("deliveries", 0)?;
            self.letters("data", 300, 500)?;
            self.subject = history(&format!("{of}-{district_number}-{number}"));
            self.add("payer", &customer)?;
            self.add("paidIn", &district)?;
            self.before("date")?;
            self.money("amount", 1_000)?;
            self.letters("data", 12, 24)?;
        }
        Ok(())
    }

    /// One order for each customer, in a random order; the last ones wait.
    fn orders(&mut self, of: u64, district_number: u64, scale: Scale) -> anyhow::Result<()> {
        let district = district(of, district_number);
        let mut customers: Vec<u64> = (1..=scale.customers).collect();
        laws::shuffle(&mut self.random, &mut customers);
        for (number, buyer) in (1..).zip(customers) {
            let delivered = number <= scale.delivered();
            let order = order(of, district_number, number);
            self.subject.clone_from(&order);
            self.add("orderOf", &district)?;
            self.integer("number", number)?;
            self.add("customer", &customer(of, district_number, buyer))?;
            self.before("entered")?;
            let lines = self.random.between(5, 15);
            self.integer("lines", lines)?;
            self.integer("allLocal", 1)?;
            if delivered {
                let carrier = self.random.between(1, 10);
                self.integer("carrier", carrier)?;
            } else {
                self.add("waitsIn", &district)?;
            }
            for at in 1..=lines {
                self.subject = line(of, district_number, number, at);
                self.add("order", &order)?;
                self.integer("number", at)?;
                let bought = self.random.between(1, scale.items);
                self.add("item", &item(bought))?;
                self.add("supply", &warehouse(of))?;
                self.integer("quantity", 5)?;
                if delivered {
                    self.before("delivered")?;
                    self.money("amount", 0)?;
                } else {
                    let cents = self.random.between(1, 999_999);
                    self.money("amount", cents)?;
                }
                self.letters("info", 24, 24)?;
            }
        }
        Ok(())
    }
}
