//! Transactions by SPARQL Update: what changes is one request, which the server does whole or not at all.
//!
//! What never changes is asked for before: the customer of a name, the prices of items. An order with an item that does not
//! exist is known by that, and nothing is sent.

use std::fmt::Write as _;

use super::Outcome;
use super::inputs::{Delivery, Input, NewOrder, Payment};
use super::reads::{customer, order_status, prices, prologue, stock_level};
use super::session::{Ask, decimal};
use crate::run::endpoint::Failure;
use crate::tpcc::{self, BASE};

/// Does one transaction.
///
/// # Errors
/// When it was not done, or it is not known.
pub(super) fn perform(ask: &impl Ask, input: &Input) -> Result<Outcome, Failure> {
    match input {
        Input::NewOrder(input) => {
            let Some(prices) = prices(ask, &input.lines)? else {
                return Ok(Outcome::RolledBack);
            };
            ask.update(&new_order(input, &prices))?;
        }
        Input::Payment(input) => {
            let customer = customer(ask, &input.customer)?;
            ask.update(&payment(input, &customer))?;
        }
        Input::Delivery(input) => ask.update(&delivery(input))?,
        Input::OrderStatus(input) => order_status(ask, input)?,
        Input::StockLevel(input) => {
            stock_level(ask, input)?;
        }
    }
    Ok(Outcome::Committed)
}

/// The order takes the district's next number, of which its IRIs are made.
fn new_order(input: &NewOrder, prices: &[i64]) -> String {
    let (warehouse, district) = (input.warehouse, input.district);
    let mut lines = String::new();
    for (line, price) in input.lines.iter().zip(prices) {
        let amount = decimal(price * i64::try_from(line.quantity).unwrap_or(0));
        // Writing to a string cannot fail.
        writeln!(
            lines,
            "    ({} {} {} {} {} {} {amount})",
            line.number,
            tpcc::item(line.item),
            tpcc::stock(line.supply, line.item),
            tpcc::warehouse(line.supply),
            line.quantity,
            u64::from(line.supply != warehouse)
        )
        .unwrap_or_default();
    }
    let all_local = input.lines.iter().all(|line| line.supply == warehouse);
    format!(
        "{prologue}DELETE {{
  {node} t:next ?o .
  ?s t:quantity ?q ; t:ytd ?y ; t:orders ?c ; t:remote ?r }}
INSERT {{
  {node} t:next ?o1 .
  ?order t:orderOf {node} ; t:waitsIn {node} ; t:number ?o ; t:customer {customer} ; t:entered \"{time}\"^^x:dateTime ;
    t:lines {count} ; t:allLocal {all_local} ; t:mark \"{mark}\" .
  ?line t:order ?order ; t:number ?n ; t:item ?i ; t:supply ?from ; t:quantity ?lq ; t:amount ?amount ; t:info ?info .
  ?s t:quantity ?q1 ; t:ytd ?y1 ; t:orders ?c1 ; t:remote ?r1 }}
WHERE {{
  {node} t:next ?o .
  VALUES (?n ?i ?s ?from ?lq ?far ?amount) {{
{lines}  }}
  ?s t:quantity ?q ; t:ytd ?y ; t:orders ?c ; t:remote ?r ; t:{info} ?info
  BIND(?o + 1 AS ?o1)
  BIND(IRI(CONCAT(\"{orders}\", STR(?o))) AS ?order)
  BIND(IRI(CONCAT(\"{orders}\", STR(?o), \"/l/\", STR(?n))) AS ?line)
  BIND(IF(?q - ?lq >= 10, ?q - ?lq, ?q - ?lq + 91) AS ?q1)
  BIND(?y + ?lq AS ?y1)
  BIND(?c + 1 AS ?c1)
  BIND(?r + ?far AS ?r1) }}",
        prologue = prologue(),
        node = tpcc::district(warehouse, district),
        customer = tpcc::customer(warehouse, district, input.customer),
        time = input.time,
        count = input.lines.len(),
        all_local = u64::from(all_local),
        mark = input.mark,
        info = tpcc::info(district),
        orders = tpcc::orders(warehouse, district),
    )
}

/// A customer with bad credit gets a note about the payment before what was noted before.
fn payment(input: &Payment, customer: &str) -> String {
    let key = customer.trim_matches(['<', '>']).trim_start_matches(BASE);
    format!(
        "{prologue}DELETE {{
  {warehouse} t:ytd ?w .
  {district} t:ytd ?d .
  {customer} t:balance ?b ; t:paid ?p ; t:payments ?n ; t:data ?data }}
INSERT {{
  {warehouse} t:ytd ?w1 .
  {district} t:ytd ?d1 .
  {customer} t:balance ?b1 ; t:paid ?p1 ; t:payments ?n1 ; t:data ?data1 .
  {history} t:payer {customer} ; t:paidIn {district} ; t:date \"{time}\"^^x:dateTime ; t:amount {amount} ; t:data ?note }}
WHERE {{
  {warehouse} t:ytd ?w ; t:name ?wn .
  {district} t:ytd ?d ; t:name ?dn .
  {customer} t:balance ?b ; t:paid ?p ; t:payments ?n ; t:credit ?credit ; t:data ?data
  BIND(?w + {amount} AS ?w1)
  BIND(?d + {amount} AS ?d1)
  BIND(?b - {amount} AS ?b1)
  BIND(?p + {amount} AS ?p1)
  BIND(?n + 1 AS ?n1)
  BIND(IF(?credit = \"BC\", SUBSTR(CONCAT(\"{key} {warehouse_number} {district_number} {amount} | \", ?data), 1, 500), ?data) AS ?data1)
  BIND(CONCAT(?wn, \"    \", ?dn) AS ?note) }}",
        prologue = prologue(),
        warehouse = tpcc::warehouse(input.warehouse),
        district = tpcc::district(input.warehouse, input.district),
        warehouse_number = input.warehouse,
        district_number = input.district,
        history = tpcc::history(&input.name),
        time = input.time,
        amount = tpcc::money(input.cents),
    )
}

/// The oldest order that waits in each of the districts.
fn delivery(input: &Delivery) -> String {
    let mut out = prologue();
    let (carrier, time) = (input.carrier, &input.time);
    let last = *input.districts.end();
    for number in input.districts.clone() {
        let district = tpcc::district(input.warehouse, number);
        let end = if number < last { " ;\n" } else { "" };
        write!(
            out,
            "DELETE {{ ?o t:waitsIn {district} . ?c t:balance ?b ; t:deliveries ?n }}
INSERT {{ ?o t:carrier {carrier} . ?l t:delivered \"{time}\"^^x:dateTime . ?c t:balance ?b1 ; t:deliveries ?n1 }}
WHERE {{
  {{ SELECT ?o (SUM(?amount) AS ?sum) {{
    {{ SELECT ?o {{ ?o t:waitsIn {district} ; t:number ?k }} ORDER BY ?k LIMIT 1 }}
    ?of t:order ?o ; t:amount ?amount }} GROUP BY ?o }}
  ?o t:customer ?c .
  ?c t:balance ?b ; t:deliveries ?n .
  ?l t:order ?o
  BIND(?b + ?sum AS ?b1)
  BIND(?n + 1 AS ?n1) }}{end}"
        )
        .unwrap_or_default();
    }
    out
}
