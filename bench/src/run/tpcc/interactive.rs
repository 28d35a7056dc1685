//! Transactions of the RDF4J protocol: the client reads, computes, and writes what it has computed.

use std::fmt::Write as _;

use super::Outcome;
use super::inputs::{Delivery, Input, Line, NewOrder, Payment};
use super::reads::{customer, order_status, prices, prologue, stock_level};
use super::session::{Ask, Session, decimal};
use crate::run::endpoint::Failure;
use crate::tpcc::{self, BASE};

/// Does one transaction.
///
/// # Errors
/// When it was not done, or it is not known.
pub(super) fn perform(session: &Session, input: &Input) -> Result<Outcome, Failure> {
    let transaction = session.begin()?;
    match within(&transaction, input) {
        Ok(Outcome::Committed) => transaction.commit().map(|()| Outcome::Committed),
        Ok(Outcome::RolledBack) => transaction.roll_back().map(|()| Outcome::RolledBack),
        Err(failure) => {
            // The server may have ended it already.
            transaction.roll_back().unwrap_or_default();
            Err(failure)
        }
    }
}

/// All of a transaction but its end, which is as this says.
///
/// # Errors
/// When there is no answer, or it is not what the data should give.
pub(super) fn within(ask: &impl Ask, input: &Input) -> Result<Outcome, Failure> {
    match input {
        Input::NewOrder(input) => return new_order(ask, input),
        Input::Payment(input) => payment(ask, input)?,
        Input::Delivery(input) => delivery(ask, input)?,
        Input::OrderStatus(input) => order_status(ask, input)?,
        Input::StockLevel(input) => {
            stock_level(ask, input)?;
        }
    }
    Ok(Outcome::Committed)
}

/// Triples to be taken away, and to be put in their place.
#[derive(Debug, Default)]
struct Change {
    old: String,
    new: String,
}

impl Change {
    /// Writing to a string cannot fail.
    fn remove(&mut self, subject: &str, predicate: &str, object: &str) {
        writeln!(self.old, "  {subject} t:{predicate} {object} .").unwrap_or_default();
    }

    fn add(&mut self, subject: &str, predicate: &str, object: &str) {
        writeln!(self.new, "  {subject} t:{predicate} {object} .").unwrap_or_default();
    }

    fn replace(&mut self, subject: &str, predicate: &str, old: &str, new: &str) {
        self.remove(subject, predicate, old);
        self.add(subject, predicate, new);
    }

    fn send(&self, ask: &impl Ask) -> Result<(), Failure> {
        let (old, new) = (&self.old, &self.new);
        ask.update(&format!(
            "{}DELETE DATA {{\n{old}}} ;\nINSERT DATA {{\n{new}}}",
            prologue()
        ))
    }
}

fn dated(time: &str) -> String {
    format!("\"{time}\"^^x:dateTime")
}

/// An order with an item that does not exist is written as far as that, and rolled back.
fn new_order(ask: &impl Ask, input: &NewOrder) -> Result<Outcome, Failure> {
    let (warehouse, district) = (input.warehouse, input.district);
    let node = tpcc::district(warehouse, district);
    let customer = tpcc::customer(warehouse, district, input.customer);
    let rows = ask.rows(&format!(
        "{}SELECT ?next ?tax ?more ?discount ?last ?credit {{ {} t:tax ?tax . {node} t:tax ?more ; t:next ?next .
  {customer} t:discount ?discount ; t:last ?last ; t:credit ?credit }}",
        prologue(),
        tpcc::warehouse(warehouse)
    ))?;
    let row = rows.only("district and customer of an order")?;
    let number = row.count("next")?;
    let mut change = Change::default();
    change.replace(
        &node,
        "next",
        &row.written("next")?,
        &(number + 1).to_string(),
    );
    let order = tpcc::order(warehouse, district, number);
    let all_local = input.lines.iter().all(|line| line.supply == warehouse);
    for (predicate, object) in [
        ("orderOf", node.clone()),
        ("waitsIn", node),
        ("number", number.to_string()),
        ("customer", customer),
        ("entered", dated(&input.time)),
        ("lines", input.lines.len().to_string()),
        ("allLocal", u64::from(all_local).to_string()),
        ("mark", format!("\"{}\"", input.mark)),
    ] {
        change.add(&order, predicate, &object);
    }
    let prices = prices(ask, &input.lines)?;
    if let Some(prices) = &prices {
        order_lines(ask, input, prices, number, &mut change)?;
    }
    change.send(ask)?;
    Ok(match prices {
        Some(_) => Outcome::Committed,
        None => Outcome::RolledBack,
    })
}

/// Takes the items of an order out of the stock.
fn order_lines(
    ask: &impl Ask,
    input: &NewOrder,
    prices: &[i64],
    order: u64,
    change: &mut Change,
) -> Result<(), Failure> {
    let (warehouse, district) = (input.warehouse, input.district);
    let stock = |line: &Line| tpcc::stock(line.supply, line.item);
    let stocks: Vec<String> = input.lines.iter().map(stock).collect();
    let rows = ask.rows(&format!(
        "{}SELECT ?s ?quantity ?ytd ?orders ?remote ?info ?data {{ VALUES ?s {{ {} }}
  ?s t:quantity ?quantity ; t:ytd ?ytd ; t:orders ?orders ; t:remote ?remote ; t:{} ?info ; t:data ?data }}",
        prologue(),
        stocks.join(" "),
        tpcc::info(district)
    ))?;
    if rows.len() != stocks.len() {
        let message = format!("{} of {} items have a stock", rows.len(), stocks.len());
        return Err(Failure::Error(message));
    }
    for row in rows.iter() {
        let stock = row.written("s")?;
        let found = stocks.iter().position(|known| *known == stock);
        let line = found.and_then(|at| Some((input.lines.get(at)?, prices.get(at)?)));
        let (line, price) =
            line.ok_or_else(|| Failure::Error(format!("{stock} was not asked for")))?;
        let quantity = row.count("quantity")?;
        let left = if quantity >= line.quantity + 10 {
            quantity - line.quantity
        } else {
            quantity + 91 - line.quantity
        };
        let more = |name: &str, by: u64| -> Result<String, Failure> {
            Ok((row.count(name)? + by).to_string())
        };
        for (name, value) in [
            ("quantity", left.to_string()),
            ("ytd", more("ytd", line.quantity)?),
            ("orders", more("orders", 1)?),
        ] {
            change.replace(&stock, name, &row.written(name)?, &value);
        }
        if line.supply != warehouse {
            change.replace(
                &stock,
                "remote",
                &row.written("remote")?,
                &more("remote", 1)?,
            );
        }
        let node = tpcc::line(warehouse, district, order, line.number);
        let amount = price * i64::try_from(line.quantity).unwrap_or(0);
        for (predicate, object) in [
            ("order", tpcc::order(warehouse, district, order)),
            ("number", line.number.to_string()),
            ("item", tpcc::item(line.item)),
            ("supply", tpcc::warehouse(line.supply)),
            ("quantity", line.quantity.to_string()),
            ("amount", decimal(amount)),
            ("info", row.written("info")?),
        ] {
            change.add(&node, predicate, &object);
        }
    }
    Ok(())
}

/// A customer with bad credit gets a note about the payment before what was noted before.
fn payment(ask: &impl Ask, input: &Payment) -> Result<(), Failure> {
    let customer = customer(ask, &input.customer)?;
    let warehouse = tpcc::warehouse(input.warehouse);
    let district = tpcc::district(input.warehouse, input.district);
    let rows = ask.rows(&format!(
        "{}SELECT ?w ?wn ?d ?dn ?balance ?paid ?payments ?credit ?data {{ {warehouse} t:ytd ?w ; t:name ?wn .
  {district} t:ytd ?d ; t:name ?dn .
  {customer} t:balance ?balance ; t:paid ?paid ; t:payments ?payments ; t:credit ?credit ; t:data ?data }}",
        prologue()
    ))?;
    let row = rows.only("customer with warehouse and district")?;
    let cents = i64::try_from(input.cents).unwrap_or(0);
    let sum =
        |name: &str, by: i64| -> Result<String, Failure> { Ok(decimal(row.cents(name)? + by)) };
    let mut change = Change::default();
    change.replace(&warehouse, "ytd", &row.written("w")?, &sum("w", cents)?);
    change.replace(&district, "ytd", &row.written("d")?, &sum("d", cents)?);
    let payments = (row.count("payments")? + 1).to_string();
    for (name, value) in [
        ("balance", sum("balance", -cents)?),
        ("paid", sum("paid", cents)?),
        ("payments", payments),
    ] {
        change.replace(&customer, name, &row.written(name)?, &value);
    }
    if row.text("credit")? == "BC" {
        let key = customer.trim_matches(['<', '>']).trim_start_matches(BASE);
        let note = format!(
            "{key} {} {} {} | {}",
            input.warehouse,
            input.district,
            decimal(cents),
            row.text("data")?
        );
        let note: String = note.chars().take(500).collect();
        let note = oxrdf::Literal::new_simple_literal(note).to_string();
        change.replace(&customer, "data", &row.written("data")?, &note);
    }
    let history = tpcc::history(&input.name);
    let note = format!("{}    {}", row.text("wn")?, row.text("dn")?);
    for (predicate, object) in [
        ("payer", customer),
        ("paidIn", district),
        ("date", dated(&input.time)),
        ("amount", decimal(cents)),
        ("data", oxrdf::Literal::new_simple_literal(note).to_string()),
    ] {
        change.add(&history, predicate, &object);
    }
    change.send(ask)
}

/// The oldest order that waits in each of the districts.
fn delivery(ask: &impl Ask, input: &Delivery) -> Result<(), Failure> {
    let mut change = Change::default();
    for number in input.districts.clone() {
        let district = tpcc::district(input.warehouse, number);
        let rows = ask.rows(&format!(
            "{}SELECT ?o ?c ?balance ?deliveries ?l ?amount {{
  {{ SELECT ?o {{ ?o t:waitsIn {district} ; t:number ?k }} ORDER BY ?k LIMIT 1 }}
  ?o t:customer ?c . ?c t:balance ?balance ; t:deliveries ?deliveries . ?l t:order ?o ; t:amount ?amount }}",
            prologue()
        ))?;
        let Ok(first) = rows.at(0, "order that waits") else {
            continue;
        };
        let order = first.written("o")?;
        change.remove(&order, "waitsIn", &district);
        change.add(&order, "carrier", &input.carrier.to_string());
        let mut sum = first.cents("balance")?;
        for row in rows.iter() {
            sum += row.cents("amount")?;
            change.add(&row.written("l")?, "delivered", &dated(&input.time));
        }
        let (customer, deliveries) = (first.written("c")?, first.count("deliveries")?);
        let (old_balance, old_deliveries) =
            (first.written("balance")?, first.written("deliveries")?);
        change.replace(&customer, "balance", &old_balance, &decimal(sum));
        let deliveries = (deliveries + 1).to_string();
        change.replace(&customer, "deliveries", &old_deliveries, &deliveries);
    }
    if change.new.is_empty() {
        return Ok(());
    }
    change.send(ask)
}
