//! Transactions against an endpoint of another engine, with a transaction or without; orders that are lost and conditions that
//! do not hold are noticed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use oxrdf::{Dataset, GraphName, Quad};
use oxttl::NTriplesParser;
use spareval::{DeleteInsertQuad, QueryEvaluator};
use spargebra::{GraphUpdateOperation, SparqlParser};

use super::inputs::{Delivery, Who};
use super::*;
use crate::graphs::Triples;
use crate::run::tests::{Request, answered, decoded, serve, status, whole};
use crate::tpcc::{VOCABULARY, population};

const SCALE: Scale = Scale {
    warehouses: 2,
    items: 60,
    customers: 10,
};

fn populated() -> Dataset {
    let mut triples = Triples::kept();
    population::write(SCALE, 1, &mut triples).unwrap();
    let mut data = Dataset::new();
    for triple in NTriplesParser::new().for_slice(&triples.out) {
        data.insert(&triple.unwrap().in_graph(GraphName::DefaultGraph));
    }
    data
}

/// Does an update request.
fn update(data: &mut Dataset, text: &str) {
    let evaluator = QueryEvaluator::new();
    let request = SparqlParser::new().parse_update(text).expect(text);
    for operation in request.operations {
        match operation {
            GraphUpdateOperation::InsertData { data: quads } => {
                for quad in quads {
                    let graph = GraphName::DefaultGraph;
                    data.insert(&Quad::new(quad.subject, quad.predicate, quad.object, graph));
                }
            }
            GraphUpdateOperation::DeleteData { data: quads } => {
                for quad in quads {
                    let graph = GraphName::DefaultGraph;
                    data.remove(&Quad::new(quad.subject, quad.predicate, quad.object, graph));
                }
            }
            GraphUpdateOperation::DeleteInsert {
                delete,
                insert,
                pattern,
                ..
            } => {
                let prepared =
                    evaluator.prepare_delete_insert(delete, insert, None, None, &pattern);
                let changes: Result<Vec<_>, _> = prepared.execute(&*data).unwrap().collect();
                let changes = changes.unwrap();
                for change in &changes {
                    if let DeleteInsertQuad::Delete(quad) = change {
                        data.remove(quad);
                    }
                }
                for change in &changes {
                    if let DeleteInsertQuad::Insert(quad) = change {
                        data.insert(quad);
                    }
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A server whose transactions are in conflict whenever another one was committed since they began. What they write is
/// seen when they are committed.
#[derive(Default)]
struct Fake {
    data: Dataset,
    version: u64,
    /// By number: the version that they began with, and their updates.
    open: BTreeMap<u64, (u64, Vec<String>)>,
    begun: u64,
    rolled_back: u64,
    in_conflict: u64,
}

const TRANSACTIONS: &str = "/repositories/fake/transactions";

impl Fake {
    fn answer(&mut self, request: &Request) -> String {
        let (method, target) = request.target.split_once(' ').unwrap();
        let (path, parameters) = target.split_once('?').unwrap_or((target, ""));
        if let Some(rest) = path.strip_prefix(TRANSACTIONS) {
            return self.transaction(method, rest.trim_start_matches('/'), parameters, request);
        }
        let head = request.head.to_lowercase();
        if head.contains("application/sparql-update") {
            update(&mut self.data, &request.body);
            self.version += 1;
            return status("204 No Content", "");
        }
        let text = if method == "GET" {
            parameters
        } else {
            &request.body
        };
        self.rows(&decoded(text.strip_prefix("query=").unwrap()))
    }

    fn rows(&self, query: &str) -> String {
        whole(&String::from_utf8(answered(&self.data, query)).unwrap())
    }

    fn transaction(&mut self, method: &str, id: &str, action: &str, request: &Request) -> String {
        if method == "POST" {
            self.begun += 1;
            self.open.insert(self.begun, (self.version, Vec::new()));
            let location = format!("Location: {TRANSACTIONS}/{}\r\n", self.begun);
            return status("201 Created", &location);
        }
        let id = id.parse().unwrap();
        match (method, action) {
            ("PUT", "action=QUERY") => return self.rows(&request.body),
            ("PUT", "action=UPDATE") => {
                let (_, updates) = self.open.get_mut(&id).unwrap();
                updates.push(request.body.clone());
            }
            ("PUT", "action=COMMIT") => {
                // One in conflict stays open until it is rolled back.
                if self.open[&id].0 != self.version {
                    self.in_conflict += 1;
                    return status("409 Conflict", "");
                }
                let (_, updates) = self.open.remove(&id).unwrap();
                for text in &updates {
                    update(&mut self.data, text);
                    self.version += 1;
                }
            }
            ("DELETE", "") => {
                self.open.remove(&id).unwrap();
                self.rolled_back += 1;
                return status("204 No Content", "");
            }
            other => panic!("{other:?}"),
        }
        status("200 OK", "")
    }
}

/// Serves it; gives its address.
fn served(fake: &Arc<Mutex<Fake>>) -> String {
    let fake = Arc::clone(fake);
    serve(move |request| fake.lock().unwrap().answer(request))
}

fn fake(data: Dataset) -> Arc<Mutex<Fake>> {
    Arc::new(Mutex::new(Fake {
        data,
        ..Fake::default()
    }))
}

fn parsed(words: &[&str]) -> Arguments {
    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }
    let command = <Command as clap::Parser>::try_parse_from(words);
    command.unwrap().arguments
}

fn arguments(url: &str, options: &[&str]) -> Arguments {
    let words = [
        "tpcc-rdf",
        url,
        "--warehouses",
        "2",
        "--items",
        "60",
        "--customers",
        "10",
    ];
    parsed(&[&words[..], options].concat())
}

/// The lines of JSON of a run, and whether it was whole.
fn ran(url: &str, options: &[&str]) -> (Vec<serde_json::Value>, bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("figures");
    let mut options = options.to_vec();
    options.extend(["--output", path.to_str().unwrap()]);
    let is_whole = run(&arguments(url, &options)).unwrap();
    let lines = std::fs::read_to_string(&path).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    (lines.collect(), is_whole)
}

fn figure(lines: &[serde_json::Value], name: &str) -> u64 {
    lines[0][name].as_u64().unwrap()
}

fn counts(lines: &[serde_json::Value]) -> Vec<u64> {
    let lines = lines[1..].iter();
    lines.map(|line| line["count"].as_u64().unwrap()).collect()
}

#[test]
fn a_deck_of_updates_leaves_the_data_consistent() {
    let fake = fake(populated());
    let (lines, is_whole) = ran(&served(&fake), &["--count", "100"]);
    assert!(is_whole, "{lines:?}");
    assert_eq!(counts(&lines), [45, 43, 4, 4, 4]);
    let rolled_back = lines[1]["rolled_back"].as_u64().unwrap();
    assert_eq!(figure(&lines, "new_orders_acknowledged"), 45 - rolled_back);
    assert!(lines[0]["new_orders_a_minute"].as_f64().unwrap() > 0.0);
    let fake = fake.lock().unwrap();
    let changed = 45 - rolled_back + 43 + 4 * DISTRICTS;
    assert_eq!(fake.version, changed);
    effects(&fake.data, 45 - rolled_back);
}

#[test]
fn transactions_of_two_clients_leave_the_data_consistent() {
    let fake = fake(populated());
    let url = served(&fake);
    let repository = url.replace("/sparql", "/repositories/fake");
    let interactive = ["--transactions", "interactive", "--repository", &repository];
    let options = [&interactive[..], &["--count", "100", "--clients", "2"]].concat();
    let (lines, is_whole) = ran(&url, &options);
    assert!(is_whole, "{lines:?}");
    assert_eq!(counts(&lines), [90, 86, 8, 8, 8]);
    let rolled_back = lines[1]["rolled_back"].as_u64().unwrap();
    let fake = fake.lock().unwrap();
    assert!(fake.open.is_empty());
    assert_eq!(fake.rolled_back, rolled_back + fake.in_conflict);
    effects(&fake.data, 90 - rolled_back);
}

/// What all transactions together must have done, beside what the conditions say.
fn effects(data: &Dataset, orders: u64) {
    let number = |query: &str| -> String {
        let query = format!("PREFIX t: <{VOCABULARY}>\n{query}");
        let answer = String::from_utf8(answered(data, &query)).unwrap();
        let value = answer
            .split_once("#integer\">")
            .or_else(|| answer.split_once("#decimal\">"));
        value.unwrap().1.split_once('<').unwrap().0.to_owned()
    };
    let count = |pattern: &str| number(&format!("SELECT (COUNT(*) AS ?n) {{ {pattern} }}"));
    assert_eq!(
        count("?o t:mark ?m ; t:orderOf ?d ; t:customer ?c ; t:entered ?e"),
        orders.to_string()
    );
    // What was sold by orders with a mark left the stock, and is paid by its price.
    let sold = "?o t:mark ?m . ?l t:order ?o";
    let quantity = number(&format!(
        "SELECT (SUM(?q) AS ?n) {{ {sold} ; t:quantity ?q }}"
    ));
    assert_eq!(
        number("SELECT (SUM(?y) AS ?n) { ?s t:stocks ?i ; t:ytd ?y }"),
        quantity
    );
    let lines = count(sold);
    assert_eq!(
        number("SELECT (SUM(?y) AS ?n) { ?s t:stocks ?i ; t:orders ?y }"),
        lines
    );
    let wrong = format!(
        "{sold} ; t:quantity ?q ; t:amount ?a ; t:item ?i . ?i t:price ?p FILTER(?q * ?p != ?a)"
    );
    assert_eq!(count(&wrong), "0");
    assert_eq!(count("?s t:stocks ?i ; t:quantity ?q FILTER(?q < 10)"), "0");
    let remote = format!("{sold} ; t:supply ?w . ?o t:orderOf/t:warehouse ?own FILTER(?w != ?own)");
    assert_eq!(
        number("SELECT (SUM(?y) AS ?n) { ?s t:stocks ?i ; t:remote ?y }"),
        count(&remote)
    );
    // Every payment is in a customer's account, its history and the districts' sums.
    let paid = number("SELECT (SUM(?p) AS ?n) { ?c t:paid ?p }");
    assert_eq!(
        number("SELECT (SUM(?p) AS ?n) { ?h t:payer ?c ; t:amount ?p }"),
        paid
    );
    assert_eq!(
        number("SELECT (SUM(?p) AS ?n) { ?c t:payments ?p }"),
        count("?h t:payer ?c")
    );
    // What was delivered, and only that, has a carrier and dates; what it costs is in the balance.
    assert_eq!(count("?o t:waitsIn ?d ; t:carrier ?c"), "0");
    assert_eq!(
        count("?l t:order/t:carrier ?c FILTER NOT EXISTS { ?l t:delivered ?d }"),
        "0"
    );
    assert_eq!(count("?l t:order/t:waitsIn ?c ; t:delivered ?d"), "0");
    let balances = "SELECT (SUM(?x) AS ?n) { ?c t:balance ?b ; t:paid ?p BIND(?b + ?p AS ?x) }";
    let delivered = "SELECT (SUM(?a) AS ?n) { ?l t:order/t:carrier ?c ; t:amount ?a }";
    assert_eq!(number(balances), number(delivered));
}

/// What a run asks is known without one, patterns of updates among it; nothing is changed.
#[test]
fn what_transactions_ask_is_drawn_without_changing_anything() {
    let fake = fake(populated());
    let url = served(&fake);
    let timeout = Duration::from_secs(60);
    let drawn = queries(&url, SCALE, (1, 3), timeout).unwrap();
    let names: Vec<&str> = drawn.iter().map(|it| it.name.as_str()).collect();
    let wanted = Kind::ALL.map(|(_, name, _)| format!("tpcc-rdf/{name}"));
    assert_eq!(names, wanted);
    let data = fake.lock().unwrap();
    assert_eq!(data.version, 0);
    for template in &drawn {
        assert!(!template.queries.is_empty(), "{}", template.name);
        for query in &template.queries {
            let answer = String::from_utf8(answered(&data.data, query)).unwrap();
            assert!(answer.contains("<result>"), "{query}\n{answer}");
        }
    }
    // As an update a new order has a pattern with what its templates need, and two queries of the other way are beside it.
    let new_order = drawn[0].queries.join("\n");
    assert!(
        new_order.contains("SELECT ?o ?s ?q ?y ?c ?r (?o + "),
        "{new_order}"
    );
    assert!(
        new_order.contains("SELECT ?s ?quantity ?ytd"),
        "{new_order}"
    );
    let delivery = drawn.iter().find(|it| it.name.ends_with("delivery"));
    let delivery = delivery.unwrap().queries.join("\n");
    assert!(
        delivery.contains("SELECT ?o ?c ?b ?n ?l (?b + ?sum AS ?b1) (?n + "),
        "{delivery}"
    );
    drop(data);
    // Data of another scale are noticed.
    let larger = Scale {
        warehouses: 3,
        ..SCALE
    };
    assert!(queries(&url, larger, (1, 3), timeout).is_err());
}

#[test]
fn an_acknowledged_order_that_is_gone_after_the_restart_is_lost() {
    let (first, second) = (fake(populated()), fake(populated()));
    let restart = format!("echo {} {}", served(&second), std::process::id());
    let (lines, is_whole) = ran(&served(&first), &["--count", "30", "--restart", &restart]);
    assert!(!is_whole);
    let done = figure(&lines, "new_orders_acknowledged");
    assert!(done > 0);
    assert_eq!(figure(&lines, "new_orders_lost"), done);
    assert_eq!(lines[0]["new_orders_a_minute"], 0.0);
    assert_eq!(figure(&lines, "violations"), 0);
    // Where all is there after the restart, it is whole.
    let restart = format!("echo {} {}", served(&first), std::process::id());
    let (_, is_whole) = ran(&served(&first), &["--count", "30", "--restart", &restart]);
    assert!(is_whole);
}

#[test]
fn each_condition_notices_what_violates_it() {
    let consistent = populated();
    let violated = |change: &str| {
        let mut data = consistent.clone();
        if !change.is_empty() {
            let prologue = format!("PREFIX t: <{VOCABULARY}> BASE <{}>\n", tpcc::BASE);
            update(&mut data, &format!("{prologue}{change}"));
        }
        let session = Session::new(&arguments(&served(&fake(data)), &[]).target());
        let found = conditions::check(&session, SCALE).unwrap();
        let mut conditions: Vec<usize> = found.iter().map(|violation| violation.0).collect();
        conditions.dedup();
        (conditions, found)
    };
    let more = |node: &str, name: &str, by: &str| {
        format!(
            "DELETE {{ {node} t:{name} ?v }} INSERT {{ {node} t:{name} ?n }} WHERE {{ {node} t:{name} ?v BIND(?v + {by} AS ?n) }}"
        )
    };
    for (change, expected) in [
        (String::new(), &[][..]),
        (more("<w/1>", "ytd", "0.01"), &[1]),
        (more("<w/2/d/10>", "ytd", "-0.01"), &[1]),
        ("INSERT DATA { <w/1> t:ytd 1.00 }".to_owned(), &[1]),
        (more("<w/1/d/3>", "next", "1"), &[2]),
        ("INSERT DATA { <w/1/d/3> t:next 12 }".to_owned(), &[2]),
        // The newest order waits no longer, though older ones do.
        (
            "DELETE DATA { <w/2/d/1/o/10> t:waitsIn <w/2/d/1> }".to_owned(),
            &[2],
        ),
        (
            "DELETE DATA { <w/2/d/1/o/9> t:waitsIn <w/2/d/1> }".to_owned(),
            &[3],
        ),
        ("INSERT DATA { <w/2/d/1/o/8> t:number 9 }".to_owned(), &[3]),
        (more("<w/2/d/1/o/4>", "lines", "1"), &[4]),
        ("DELETE WHERE { <w/1/d/1/o/2/l/3> ?p ?o }".to_owned(), &[4]),
        ("DELETE WHERE { <w/1/d/2> ?p ?o }".to_owned(), &[1, 2]),
        (
            "DELETE WHERE { ?o t:orderOf <w/1/d/2> }".to_owned(),
            &[2, 4],
        ),
        ("DELETE WHERE { <w/2> ?p ?o }".to_owned(), &[1]),
    ] {
        let (conditions, found) = violated(&change);
        assert_eq!(conditions, expected, "{change}: {found:?}");
    }
}

fn delivery() -> Input {
    Input::Delivery(Delivery {
        warehouse: 1,
        districts: 1..=DISTRICTS,
        carrier: 3,
        time: now(),
    })
}

#[test]
fn conflicts_are_repeated_and_other_errors_are_not() {
    let tried = |answers: Vec<&'static str>, options: &[&str]| {
        let mut answers = answers.into_iter();
        let url = serve(move |_| status(answers.next().unwrap(), ""));
        let mut options = options.to_vec();
        let repository = url.replace("/sparql", "/repositories/fake");
        options.extend(["--repository", &repository]);
        let arguments = arguments(&url, &options);
        Driver::new(&arguments, arguments.target())
            .tried(&Session::new(&arguments.target()), &delivery())
    };
    // A transaction for each district: only the one that was in conflict is repeated.
    let (conflict, ok) = ("409 Conflict", "200 OK");
    let answers = vec![
        conflict, conflict, ok, ok, ok, conflict, ok, ok, ok, ok, ok, ok, ok,
    ];
    let (result, repeats) = tried(answers, &[]);
    assert_eq!((result, repeats), (Ok(Outcome::Committed), 3));
    let (result, repeats) = tried(vec!["503 Service Unavailable"], &[]);
    assert_eq!(repeats, 0);
    assert_eq!(said(&result, Duration::ZERO), Said::Nothing);
    // A server that begins nothing.
    let interactive = ["--transactions", "interactive"];
    let (result, _) = tried(vec!["200 OK"], &interactive);
    assert!(matches!(result, Err(Failure::Error(said)) if said.contains("200")));
    let (result, _) = tried(vec!["201 Created"], &interactive);
    assert!(matches!(result, Err(Failure::Error(said)) if said.contains("Location")));
}

#[test]
fn data_of_another_size_are_refused() {
    let url = served(&fake(populated()));
    let said = |options: &[&str]| {
        let words = [&["tpcc-rdf", url.as_str()][..], options].concat();
        run(&parsed(&words)).unwrap_err().to_string()
    };
    let small = ["--items", "60", "--customers", "10"];
    let with = |warehouses| said(&[&["--warehouses", warehouses][..], &small].concat());
    assert!(with("3").contains("w/3> is not there"), "{}", with("3"));
    assert!(with("1").contains("w/2> is there"), "{}", with("1"));
    assert!(said(&["--warehouses", "2"]).contains("i/100000> is not there"));
}

#[test]
fn inputs_follow_the_laws_of_the_mix() {
    let scale = Scale {
        warehouses: 3,
        items: 100_000,
        customers: 3_000,
    };
    let constants = Constants::of_a_run(&mut Random::new(1, Stream::Terminal, 0));
    let mut terminal = Terminal::new(scale, constants, "run", 4, 1);
    let (mut kinds, mut marks) = (BTreeMap::new(), std::collections::BTreeSet::new());
    let (mut rolled_back, mut lines, mut far) = (0, 0, 0);
    let (mut elsewhere, mut by_name) = (0, 0);
    const COUNT: u64 = 40_000;
    for at in 0..COUNT {
        let (kind, input) = terminal.next("2026-01-01T00:00:00Z");
        *kinds.entry(kind).or_insert(0) += 1;
        if at % 100 == 99 {
            let shares: Vec<u64> = kinds.values().copied().collect();
            assert_eq!(shares, [45, 43, 4, 4, 4]);
            kinds.clear();
        }
        match input {
            Input::NewOrder(order) => {
                assert!(marks.insert(order.mark) && order.warehouse == 2);
                assert!((5..=15).contains(&order.lines.len()));
                let mut items: Vec<u64> = order.lines.iter().map(|line| line.item).collect();
                rolled_back += u64::from(items.contains(&100_001));
                items.sort_unstable();
                items.dedup();
                assert_eq!(items.len(), order.lines.len());
                lines += order.lines.len() as u64;
                far += order.lines.iter().filter(|line| line.supply != 2).count() as u64;
                assert!(
                    order
                        .lines
                        .iter()
                        .all(|line| (1..=3).contains(&line.supply))
                );
            }
            Input::Payment(payment) => {
                assert!(marks.insert(payment.name) && payment.warehouse == 2);
                let customer = payment.customer;
                let own = customer.warehouse == 2 && customer.district == payment.district;
                elsewhere += u64::from(!own);
                by_name += u64::from(matches!(customer.who, Who::Last(_)));
            }
            Input::StockLevel(input) => assert_eq!((input.warehouse, input.district), (2, 2)),
            Input::OrderStatus(_) | Input::Delivery(_) => {}
        }
    }
    let orders = COUNT * 45 / 100;
    let payments = COUNT * 43 / 100;
    let near = |found: u64, share: f64, of: u64| {
        let deviation = (share * (1.0 - share) / of as f64).sqrt();
        let found = found as f64 / of as f64;
        assert!((found - share).abs() < 5.0 * deviation, "{found} {share}");
    };
    near(rolled_back, 0.01, orders);
    near(far, 0.01, lines);
    near(elsewhere, 0.15, payments);
    near(by_name, 0.6, payments);
}
