//! Texts of queries: parsed, planned, run over a small database, written in every format.

use std::time::Duration;

use stoa_database::results::{Answer, ResultFormat, SolutionsFormat};
use stoa_database::{Access, Database, GraphFormat, QueryKind, QueryOptions};
use stoa_storage::SimulatedDisk;

use super::{load, open, runtime, told};
use crate::driver::Target;

/// What the database of the queries may take, in bytes.
const MEMORY_BYTES: u64 = 32 << 20;
/// How many looks at the clock a query may take.
const TIMEOUT_LOOKS: u64 = 300;
/// As much of an answer is written, in bytes.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The target.
pub const TARGET: Target = Target {
    name: "query",
    words: WORDS,
    input_bytes_max: 16 << 10,
    memory_bytes_max: 64 << 20,
    cases: 12_000,
};

/// Data with terms of all kinds, named graphs, a cycle and triple terms.
pub const DATA: &str = r#"
PREFIX : <http://a/>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
:a :p :b , :c ; :q 1 , 2.5 , 1e3 , "x" , "y"@en , "z"@ar--rtl , true .
:b :p :c ; :q "2020-01-01"^^xsd:date , "2020-01-01T10:00:00Z"^^xsd:dateTime , "abc"^^xsd:integer .
:c :p :a , _:n . _:n :p _:m . _:m :p _:n ; :q "a long text that no id can hold in itself" .
:a :r <<( :a :p :b )>> , <<( :s :p <<( :s :p "t"@en )>> )>> , ( 1 2 3 ) .
:a :p :d {| :since 2020 |} .
:g { :a :p :b . :x :q "PT1H"^^xsd:duration , "P1Y"^^xsd:yearMonthDuration , "\u0000\uFFFF\"\\<&" }
:h { :a :p :c . :x :q "12:00:00"^^xsd:time , "INF"^^xsd:double , "NaN"^^xsd:float }
"#;

/// Queries over one database.
#[derive(Debug)]
pub struct Queries {
    database: Database,
    next: usize,
}

impl Default for Queries {
    /// Loads the data.
    fn default() -> Self {
        let database = open(
            &runtime(MEMORY_BYTES),
            &SimulatedDisk::new(1),
            Access::Exclusive,
        )
        .expect("a database can be made");
        load(&database, DATA.as_bytes(), Some(GraphFormat::TriG)).expect("the data can be loaded");
        Self { database, next: 0 }
    }
}

impl Queries {
    /// Asks.
    ///
    /// # Errors
    /// For an internal error.
    pub fn run(&mut self, input: &[u8]) -> Result<String, String> {
        let text = String::from_utf8_lossy(input);
        self.next += 1;
        let options = QueryOptions {
            base: Some("http://base/x/".to_owned()),
            timeout: Some(Duration::from_millis(TIMEOUT_LOOKS)),
            default_graph_union: self.next % 4 == 1,
            naive: self.next % 8 == 2,
            batch_rows: (self.next % 8 == 3).then_some(2),
            ..QueryOptions::default()
        };
        let query = match self.database.prepare(&text, &options) {
            Ok(query) => query,
            Err(error) => return told(&error),
        };
        let plan = query.explain();
        let mut shape: Vec<&str> = plan
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        shape.dedup();
        shape.truncate(12);
        let shape = shape.join(" ");
        let mut answer = match Answer::new(query, self.format(&text, &options)) {
            Ok(answer) => answer,
            Err(error) => return told(&error),
        };
        let mut out = Vec::new();
        let mut bytes = 0;
        loop {
            match answer.step(&mut out) {
                Ok(true) if bytes > ANSWER_BYTES_MAX => return Ok(format!("{shape}: long")),
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return told(&error).map(|kind| format!("{shape}: {kind}")),
            }
            bytes += out.len();
            out.clear();
        }
        Ok(format!("{shape}: {}", bytes > 200))
    }

    /// One format after the other.
    fn format(&self, text: &str, options: &QueryOptions) -> ResultFormat {
        let kind = self
            .database
            .prepare(text, options)
            .map_or(QueryKind::Boolean, |query| query.kind());
        let solutions = [
            SolutionsFormat::Json,
            SolutionsFormat::Xml,
            SolutionsFormat::Csv,
            SolutionsFormat::Tsv,
            SolutionsFormat::Table,
        ];
        let at = |length: usize| self.next % length;
        if kind == QueryKind::Graph {
            let all = GraphFormat::ALL;
            ResultFormat::Graph(all.get(at(all.len())).copied().unwrap_or(GraphFormat::TriG))
        } else {
            let format = solutions.get(at(solutions.len())).copied();
            ResultFormat::Solutions(format.unwrap_or(SolutionsFormat::Json))
        }
    }
}

const WORDS: &[&str] = &[
    "SELECT ",
    "DISTINCT ",
    "REDUCED ",
    "ASK ",
    "CONSTRUCT ",
    "DESCRIBE ",
    "WHERE ",
    "FROM ",
    "FROM NAMED ",
    "PREFIX : <http://a/> ",
    "BASE <http://a/> ",
    "VERSION \"1.2\" ",
    "* ",
    "?a ",
    "?b ",
    "?c ",
    "$d ",
    ":a ",
    ":p ",
    ":q ",
    "a ",
    "_:x ",
    "[] ",
    "() ",
    "OPTIONAL { ",
    "UNION ",
    "MINUS { ",
    "FILTER ",
    "FILTER EXISTS { ",
    "NOT EXISTS { ",
    "GRAPH ?g { ",
    "GRAPH :g { ",
    "SERVICE ",
    "SILENT ",
    "SERVICE <http://127.0.0.1:9/> { ",
    "BIND( ",
    "AS ?z ",
    "VALUES ?a { ",
    "UNDEF ",
    "LATERAL { ",
    "{ ",
    "} ",
    "( ",
    ") ",
    ". ",
    "; ",
    ", ",
    "/ ",
    "| ",
    "^",
    "! ",
    "* ",
    "+ ",
    "? ",
    "!(",
    "<<( ",
    ")>> ",
    "<< ",
    ">> ",
    "{| ",
    "|} ",
    "~ ",
    "GROUP BY ",
    "HAVING ",
    "ORDER BY ",
    "ASC ",
    "DESC ",
    "LIMIT 1 ",
    "OFFSET 1 ",
    "COUNT( ",
    "COUNT(*) ",
    "SUM( ",
    "AVG( ",
    "MIN( ",
    "MAX( ",
    "SAMPLE( ",
    "GROUP_CONCAT( ",
    "; SEPARATOR = \",\" ",
    "STR( ",
    "LANG( ",
    "LANGDIR( ",
    "LANGMATCHES( ",
    "hasLANG( ",
    "hasLANGDIR( ",
    "DATATYPE( ",
    "IRI( ",
    "BNODE( ",
    "BNODE() ",
    "RAND() ",
    "NOW() ",
    "UUID() ",
    "STRUUID() ",
    "STRDT( ",
    "STRLANG( ",
    "STRLANGDIR( ",
    "isIRI( ",
    "isBLANK( ",
    "isLITERAL( ",
    "isNUMERIC( ",
    "isTRIPLE( ",
    "TRIPLE( ",
    "SUBJECT( ",
    "PREDICATE( ",
    "OBJECT( ",
    "STRLEN( ",
    "SUBSTR( ",
    "UCASE( ",
    "LCASE( ",
    "STRSTARTS( ",
    "STRENDS( ",
    "CONTAINS( ",
    "STRBEFORE( ",
    "STRAFTER( ",
    "ENCODE_FOR_URI( ",
    "CONCAT( ",
    "REPLACE( ",
    "REGEX( ",
    "ABS( ",
    "ROUND( ",
    "CEIL( ",
    "FLOOR( ",
    "YEAR( ",
    "MONTH( ",
    "DAY( ",
    "HOURS( ",
    "MINUTES( ",
    "SECONDS( ",
    "TIMEZONE( ",
    "TZ( ",
    "ADJUST( ",
    "MD5( ",
    "SHA1( ",
    "SHA256( ",
    "SHA384( ",
    "SHA512( ",
    "IF( ",
    "COALESCE( ",
    "BOUND( ",
    "sameTerm( ",
    "IN ( ",
    "NOT IN ( ",
    "&& ",
    "|| ",
    "= ",
    "!= ",
    "< ",
    "> ",
    "<= ",
    ">= ",
    "- ",
    "1 ",
    "-1 ",
    "1.5 ",
    "1e0 ",
    "\"x\" ",
    "\"x\"@en ",
    "\"x\"@en--ltr ",
    "true ",
    "false ",
    "\"1\"^^<http://www.w3.org/2001/XMLSchema#integer> ",
    "<http://www.w3.org/2001/XMLSchema#dateTime>(",
    "<http://www.w3.org/2001/XMLSchema#decimal>(",
    "<http://www.w3.org/2001/XMLSchema#dayTimeDuration>(",
    "<> ",
    "<a> ",
    "# \n",
    "\"\"\"",
    "'''",
];
