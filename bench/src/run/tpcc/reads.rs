//! What transactions read, whether each query is for itself or within a transaction.

use super::inputs::{Customer, Line, OrderStatus, StockLevel, Who};
use super::session::Ask;
use crate::run::endpoint::Failure;
use crate::tpcc::{self, VOCABULARY};

/// What queries and updates begin with.
pub(super) fn prologue() -> String {
    format!("PREFIX t: <{VOCABULARY}>\nPREFIX x: <http://www.w3.org/2001/XMLSchema#>\n")
}

/// The IRI of a customer, in angle brackets. By name it is the middle one of those with that name, by first name.
///
/// # Errors
/// When there is no such customer.
pub(super) fn customer(ask: &impl Ask, customer: &Customer) -> Result<String, Failure> {
    let (warehouse, district) = (customer.warehouse, customer.district);
    match &customer.who {
        Who::Number(number) => Ok(tpcc::customer(warehouse, district, *number)),
        Who::Last(name) => {
            let district = tpcc::district(warehouse, district);
            let rows = ask.rows(&format!(
                "{}SELECT ?c {{ ?c t:last \"{name}\" ; t:district {district} ; t:first ?first }} ORDER BY ?first",
                prologue()
            ))?;
            let middle = rows.len().saturating_sub(1) / 2;
            rows.at(middle, "customer of that name")?.written("c")
        }
    }
}

/// The prices of the items of an order in cents, by line; none if one does not exist.
///
/// # Errors
/// When there is no answer.
pub(super) fn prices(ask: &impl Ask, lines: &[Line]) -> Result<Option<Vec<i64>>, Failure> {
    let items: Vec<String> = lines.iter().map(|line| tpcc::item(line.item)).collect();
    let rows = ask.rows(&format!(
        "{}SELECT ?i ?price ?name ?data {{ VALUES ?i {{ {} }} ?i t:price ?price ; t:name ?name ; t:data ?data }}",
        prologue(),
        items.join(" ")
    ))?;
    let mut found = Vec::new();
    for row in rows.iter() {
        found.push((row.written("i")?, row.cents("price")?));
    }
    let price = |item: &String| {
        let entry = found.iter().find(|(known, _)| known == item);
        entry.map(|(_, price)| *price)
    };
    Ok(items.iter().map(price).collect())
}

/// A customer's last order with its lines.
///
/// # Errors
/// When there is no answer, or no order.
pub(super) fn order_status(ask: &impl Ask, input: &OrderStatus) -> Result<(), Failure> {
    let customer = customer(ask, &input.customer)?;
    let rows = ask.rows(&format!(
        "{}SELECT ?first ?middle ?last ?balance ?o ?entered ?carrier ?i ?supply ?quantity ?amount ?delivered {{
  {{ SELECT ?o {{ ?o t:customer {customer} ; t:number ?k }} ORDER BY DESC(?k) LIMIT 1 }}
  ?o t:entered ?entered .
  {customer} t:first ?first ; t:middle ?middle ; t:last ?last ; t:balance ?balance .
  ?l t:order ?o ; t:item ?i ; t:supply ?supply ; t:quantity ?quantity ; t:amount ?amount
  OPTIONAL {{ ?o t:carrier ?carrier }}
  OPTIONAL {{ ?l t:delivered ?delivered }} }}",
        prologue()
    ))?;
    rows.at(0, "line of a last order").map(|_| ())
}

/// How many items of the last twenty orders of a district are short.
///
/// # Errors
/// When there is no answer.
pub(super) fn stock_level(ask: &impl Ask, input: &StockLevel) -> Result<u64, Failure> {
    let (warehouse, district) = (input.warehouse, input.district);
    let node = tpcc::district(warehouse, district);
    let next = ask.rows(&format!(
        "{}SELECT ?next {{ {node} t:next ?next }}",
        prologue()
    ))?;
    let next = next.only("next number of a district")?.count("next")?;
    let orders = next.saturating_sub(20).max(1)..next;
    let orders: Vec<String> = orders
        .map(|number| tpcc::order(warehouse, district, number))
        .collect();
    let rows = ask.rows(&format!(
        "{}SELECT (COUNT(DISTINCT ?i) AS ?low) {{ VALUES ?o {{ {} }} ?l t:order ?o ; t:item ?i .
  ?s t:stocks ?i ; t:stockOf {} ; t:quantity ?quantity FILTER(?quantity < {}) }}",
        prologue(),
        orders.join(" "),
        tpcc::warehouse(warehouse),
        input.threshold
    ))?;
    rows.only("count")?.count("low")
}
