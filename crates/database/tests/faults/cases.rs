//! A query for each operator and each way in which it works, with what EXPLAIN ANALYZE tells of it.

use stoa_database::{ForcedChoices, ForcedJoin, QueryOptions};

pub(crate) const PROLOGUE: &str = "PREFIX : <http://a/>\n";

/// From the second row on operators put on disk what they can.
const ON_DISK: Option<(u64, usize)> = Some((0, 20));

/// See the module header.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) query: &'static str,
    change: fn(&mut QueryOptions),
    /// Each stands in a line of EXPLAIN ANALYZE.
    pub(crate) told: &'static [&'static str],
    pub(crate) is_ordered: bool,
    pub(crate) is_on_disk: bool,
    /// Whether it finds another way where the disk is full.
    pub(crate) goes_on_without_disk: bool,
    pub(crate) has_threads: bool,
    /// Whether the database is opened anew before each run, since it keeps what was found out for a plan.
    pub(crate) is_planned_anew: bool,
    /// Whether it is about what an earlier run has left in memory.
    pub(crate) is_run_before: bool,
}

impl Case {
    /// Any query, to be answered whatever has become of others.
    pub(crate) const NEXT: Self = case(
        "the next query",
        "SELECT * { ?s :kind :k5 ; :number ?n ; :text ?t }",
        usual,
        &[],
    );

    const fn ordered(self) -> Self {
        Self {
            is_ordered: true,
            ..self
        }
    }

    const fn on_disk(self) -> Self {
        Self {
            is_on_disk: true,
            ..self
        }
    }

    const fn or_without_disk(self) -> Self {
        Self {
            goes_on_without_disk: true,
            ..self
        }
    }

    const fn planned_anew(self) -> Self {
        Self {
            is_planned_anew: true,
            ..self
        }
    }

    const fn run_before(self) -> Self {
        Self {
            is_run_before: true,
            ..self
        }
    }

    const fn by_threads(self) -> Self {
        Self {
            has_threads: true,
            ..self
        }
    }

    pub(crate) fn text(&self) -> String {
        format!("{PROLOGUE}{}", self.query)
    }

    /// Nothing is chosen by cost, so that the data may be small.
    pub(crate) fn options(&self) -> QueryOptions {
        let mut options = QueryOptions {
            plans: false,
            notes: false,
            batch_rows: Some(100),
            parallel_rows_min: Some(if self.has_threads { 0 } else { u64::MAX }),
            key_filter_rows_min: Some(u64::MAX),
            switch_after_rows: Some(u64::MAX),
            spill_after: if self.is_on_disk { ON_DISK } else { None },
            forced: ForcedChoices {
                difference: Some(false),
                samples: Some(false),
                sets: Some(false),
                top_values: Some(false),
                ranges: Some(false),
                common_subplans: Some(false),
                ..ForcedChoices::NONE
            },
            force_adjacency: Some(false),
            ..QueryOptions::default()
        };
        (self.change)(&mut options);
        options
    }
}

const fn case(
    name: &'static str,
    query: &'static str,
    change: fn(&mut QueryOptions),
    told: &'static [&'static str],
) -> Case {
    Case {
        name,
        query,
        change,
        told,
        is_ordered: false,
        is_on_disk: false,
        goes_on_without_disk: false,
        has_threads: false,
        is_planned_anew: false,
        is_run_before: false,
    }
}

/// One whose operators go to disk.
const fn stored(
    name: &'static str,
    query: &'static str,
    change: fn(&mut QueryOptions),
    told: &'static [&'static str],
) -> Case {
    case(name, query, change, told).on_disk()
}

const fn usual(_: &mut QueryOptions) {}

fn merging(options: &mut QueryOptions) {
    options.forced.join = Some(ForcedJoin::Merge);
}

/// Groups and keys come in several batches.
fn in_small_batches(options: &mut QueryOptions) {
    options.batch_rows = Some(10);
    options.spill_after = Some((0, 5));
}

fn merging_long_groups(options: &mut QueryOptions) {
    merging(options);
    in_small_batches(options);
}

fn merging_over_gaps(options: &mut QueryOptions) {
    merging(options);
    options.leap_rows_min = Some(0);
}

fn hashing(options: &mut QueryOptions) {
    options.forced.join = Some(ForcedJoin::Hash);
}

fn hashing_few(options: &mut QueryOptions) {
    hashing(options);
    in_small_batches(options);
}

fn filtering(options: &mut QueryOptions) {
    hashing(options);
    options.key_filter_rows_min = Some(0);
}

fn looking_up(options: &mut QueryOptions) {
    options.forced.join = Some(ForcedJoin::IndexNestedLoop);
}

fn counting(options: &mut QueryOptions) {
    looking_up(options);
    options.forced.partner_counts = Some(true);
}

fn counting_switched(options: &mut QueryOptions) {
    counting(options);
    options.switch_after_rows = Some(5);
}

fn switching(options: &mut QueryOptions) {
    looking_up(options);
    options.switch_after_rows = Some(5);
}

/// With room for the table of the join, and not for all that is sorted.
fn switching_below_a_sort(options: &mut QueryOptions) {
    switching(options);
    options.spill_after = Some((300_000, 20));
}

fn with_parameters(options: &mut QueryOptions) {
    options.forced.parameters = Some(true);
}

fn leaping(options: &mut QueryOptions) {
    options.forced.join = Some(ForcedJoin::Leapfrog);
}

fn subtracting(options: &mut QueryOptions) {
    options.forced.difference = Some(true);
}

fn subtracting_many_keys(options: &mut QueryOptions) {
    subtracting(options);
    in_small_batches(options);
}

fn in_common(options: &mut QueryOptions) {
    options.forced.common_subplans = Some(true);
}

fn by_ranges(options: &mut QueryOptions) {
    options.forced.ranges = Some(true);
    options.range_rows = Some(100);
}

fn remembering(options: &mut QueryOptions) {
    options.term_memo_after_rows = Some(0);
}

fn read_into_memory(options: &mut QueryOptions) {
    options.force_adjacency = Some(true);
}

const INNER: &str = "SELECT * { ?s :kind ?k ; :number ?n }";
const LEFT: &str = "SELECT * { ?s :kind ?k OPTIONAL { ?s :tag ?t } }";
const TWO_KEYS: &str = "SELECT * { ?s :tag ?t OPTIONAL { ?s ?p ?t } }";
const SEMI: &str = "SELECT * { ?s :kind ?k FILTER EXISTS { ?s :tag ?t } }";
const ANTI: &str = "SELECT * { ?s :kind ?k FILTER NOT EXISTS { ?s :tag ?t } }";
const MINUS: &str = "SELECT * { ?s :kind ?k OPTIONAL { ?s :tag ?t } MINUS { ?x :likes ?t } }";
const MARK: &str = "SELECT ?s { ?s :number ?n FILTER(?n < 300 || EXISTS { ?s :tag ?t }) }";
const TRIANGLES: &str = "SELECT * { ?a :knows ?b . ?b :knows ?c . ?a :knows ?c }";
const TWICE: &str =
    "SELECT * { { ?s :kind ?k . ?s :number ?n } UNION { ?s :kind ?k . ?s :number ?n } }";
const DIFFERENCE: &str = "SELECT ?t (COUNT(*) AS ?c) (SUM(?n) AS ?m) {
    { SELECT DISTINCT ?t { ?x :kind ?k ; :tag ?t } } ?s :number ?n FILTER NOT EXISTS { ?s :tag ?t } } GROUP BY ?t";
const MANY_WAYS: &str =
    "SELECT * { ?s :kind ?k ; :tag ?t ; :number ?n . ?k :group ?g ; :rank ?r FILTER(?r < 50) }";

const RANGE: &str = "SELECT * { ?s :number ?n FILTER(?n >= 300 && ?n < 1200) }";
const APPLY: &str =
    "SELECT ?k ?n { ?k :rank ?n FILTER NOT EXISTS { ?q :rank ?m FILTER(?m > ?n + 30) } }";
const APPLY_SEMI: &str =
    "SELECT ?k ?n { ?k :rank ?n FILTER EXISTS { ?q :rank ?m FILTER(?m > ?n + 30) } }";
const APPLY_MARK: &str =
    "SELECT ?k ?n { ?k :rank ?n FILTER(?n > 80 || EXISTS { ?q :rank ?m FILTER(?m > ?n + 30) }) }";
const APPLY_LEFT: &str = "SELECT * { ?k :group :g1 OPTIONAL { ?s :kind ?k ; :tag ?t } }";
const APPLY_INNER: &str = "SELECT * { VALUES ?k { :k1 :k2 :k3 }
    { SELECT DISTINCT ?k ?u { ?s :kind ?k ; :tag ?t . ?u :tag ?t } } }";
const APPLY_TO_MANY: &str = "SELECT ?s ?n { ?s :number ?n
    FILTER NOT EXISTS { ?q :group :g1 ; :rank ?m FILTER(?m + 1400 < ?n) } }";
const PARTNERS: &str = "SELECT ?k (COUNT(?s) AS ?c) { ?k :group ?g . ?s :kind ?k } GROUP BY ?k";
const PARTNERS_OF_MANY: &str =
    "SELECT ?s (COUNT(?t) AS ?c) { ?s :kind ?k OPTIONAL { ?s :tag ?t } } GROUP BY ?s";
const PARTNERS_IF_ANY: &str =
    "SELECT ?t (COUNT(?g) AS ?c) { ?s :tag ?t OPTIONAL { ?g :likes ?t } } GROUP BY ?t";
const PARAMETERS: &str = "SELECT * { ?s :number ?n ; :kind ?k . :i7 :number ?m FILTER(?n > ?m) }";
const VALUES: &str = "SELECT * { VALUES ?k { :k1 :k2 :k3 } ?s :kind ?k ; :text ?t }";
const UNION: &str = "SELECT * { { ?s :kind :k1 } UNION { ?s :tag ?t } }";
const CONTAINS: &str = "SELECT ?s { ?s :text ?t FILTER(CONTAINS(?t, '7')) }";
const CONTAINS_OF_FEW: &str = "SELECT * { ?s :kind ?k FILTER(CONTAINS(STR(?k), '7')) }";
const HANDED: &str =
    "SELECT * { { SELECT ?s { ?s :number ?n } ORDER BY ?n LIMIT 900 } ?s :text ?t ; :kind ?k }";
const HANDED_IN_UNION: &str = "SELECT * { { ?s :kind :k5 ; :text ?t } UNION
    { { SELECT ?s { ?s :number ?n } ORDER BY ?n LIMIT 900 } ?s :text ?t } }";
const NUMBERS_OF_TEXTS: &str =
    "SELECT ?k (SUM(STRLEN(?t)) AS ?n) { ?s :text ?t ; :kind ?k } GROUP BY ?k";
const PREFIX_OF_TEXTS: &str =
    "SELECT * { ?s :text ?t FILTER(STRSTARTS(?t, \"the text of item 00\")) }";
const OF_ONE_GROUP: &str = "SELECT * { ?s :kind ?k . ?k :group :g1 ; :rank ?r }";
const OF_FEW: &str = "SELECT * { ?k :group :g1 . ?s :kind ?k ; :text ?t }";
const LIKES_SORTED: &str =
    "SELECT * { ?g :likes ?t . ?s :tag ?t ; :text ?x } ORDER BY DESC(?x) ?g ?t";
const LIKES: &str = "SELECT * { ?g :likes ?t . ?s :tag ?t }";
const IN_ORDER: &str = "SELECT * { { SELECT * { ?s :kind ?k OPTIONAL { ?s :tag ?t } } OFFSET 7 } }";
const FEW_GROUPS: &str =
    "SELECT ?k (COUNT(?s) AS ?c) (SUM(?n) AS ?m) { ?s :kind ?k ; :number ?n } GROUP BY ?k";
const MANY_GROUPS: &str =
    "SELECT ?n (COUNT(?s) AS ?c) (MAX(?t) AS ?m) { ?s :number ?n ; :text ?t } GROUP BY ?n";
const DISTINCT_VALUES: &str =
    "SELECT ?k (COUNT(DISTINCT ?n) AS ?c) { ?s :kind ?k ; :number ?n } GROUP BY ?k";
const TEXTS: &str = "SELECT ?k (GROUP_CONCAT(?t) AS ?all) { ?s :kind ?k ; :text ?t } GROUP BY ?k";
const OF_INDEX: &str = "SELECT ?k (COUNT(*) AS ?c) { ?s :kind ?k } GROUP BY ?k";
const DISTINCT: &str = "SELECT DISTINCT ?k ?t { ?s :kind ?k ; :tag ?t }";
const SKIPPING: &str = "SELECT DISTINCT ?k { ?s :kind ?k ; :tag ?t }";
const BOTH: &str =
    "SELECT ?x (COUNT(*) AS ?n) { { ?s :text ?x } UNION { ?s :tag ?x } } GROUP BY ?x";
const CONSTRUCT: &str = "CONSTRUCT { ?k :has ?t } { ?s :kind ?k ; :tag ?t }";
const COMPUTED: &str =
    "SELECT DISTINCT ?x { ?s :text ?t BIND(CONCAT(?t, ' and what is computed') AS ?x) }";
/// Ten groups, so that nothing but their texts goes to disk.
const LONG_TEXTS: &str = "SELECT ?d (STRLEN(GROUP_CONCAT(CONCAT(?t, ' and so on, and so on, and so on, and so on, and so on, and so on, and so on'))) AS ?n)
    { ?s :text ?t BIND(SUBSTR(STR(?s), STRLEN(STR(?s))) AS ?d) } GROUP BY ?d";
const SORT: &str = "SELECT ?s ?t { ?s :text ?t } ORDER BY DESC(?t)";
const BY_COMPUTED: &str = "SELECT ?s { ?s :text ?t ; :number ?n } ORDER BY CONCAT(STR(?n), ?t)";
const TOP_FEW: &str = "SELECT ?s ?t { ?s :text ?t } ORDER BY DESC(?t) LIMIT 60";
const TOP_MANY: &str = "SELECT ?s ?t { ?s :text ?t } ORDER BY DESC(?t) LIMIT 1000";
const RANGES: &str = "SELECT ?s ?n ?k { ?s :number ?n ; :kind ?k } ORDER BY DESC(?n) LIMIT 900";
const PATH_FROM_ONE: &str = "SELECT ?x { :c3 :p+ ?x }";
const PATHS: &str = "SELECT * { ?x :p+ ?y }";
const PATH_OF_BOTH: &str = "SELECT ?k { ?k :group ?g FILTER EXISTS { :c3 :p+ :c90 } }";
const PATHS_OF_SOME: &str = "SELECT * { VALUES ?x { :c3 :c40 :c7 } ?x :p+ ?y }";

pub(crate) const ALL: [&[Case]; 6] = [
    JOINS,
    JOINS_ON_DISK,
    GROUPS,
    ORDERS_AND_PATHS,
    PLANNING,
    THREADS,
];

pub(crate) const JOINS: &[Case] = &[
    case("index_scan", RANGE, usual, &["index_scan .. in "]),
    case("filter", CONTAINS, usual, &["filter", "project"]),
    case(
        "term memo",
        CONTAINS_OF_FEW,
        remembering,
        &["conditions known from earlier rows"],
    ),
    case("values", VALUES, usual, &["values"]),
    case("union", UNION, usual, &["union"]),
    case(
        "graph_scan",
        "SELECT ?g { GRAPH ?g { } }",
        usual,
        &["graph_scan"],
    ),
    case("merge_join", INNER, merging, &["merge_join ?s"]),
    case("merge_join left", LEFT, merging, &["merge_join left"]),
    case("merge_join semi", SEMI, merging, &["merge_join semi"]),
    case("merge_join anti", ANTI, merging, &["merge_join anti"]),
    case(
        "merge_join that leaps",
        OF_ONE_GROUP,
        merging_over_gaps,
        &["merge_join ?k", "leaps="],
    ),
    case("hash_join", INNER, hashing, &["hash_join ?s"]),
    case("hash_join left", LEFT, hashing, &["hash_join left"]),
    case("hash_join semi", SEMI, hashing, &["hash_join semi"]),
    case("hash_join anti", ANTI, hashing, &["hash_join anti"]),
    case("hash_join minus", MINUS, hashing, &["hash_join minus"]),
    case("hash_join mark", MARK, hashing, &["hash_join mark"]),
    case(
        "key filter",
        OF_ONE_GROUP,
        filtering,
        &["hash_join", "dropped=|keys="],
    ),
    case(
        "look-ups",
        OF_FEW,
        looking_up,
        &["index_nested_loop_join PSOG"],
    ),
    case(
        "look-ups left",
        LEFT,
        looking_up,
        &["index_nested_loop_join left"],
    ),
    case(
        "look-ups semi",
        SEMI,
        looking_up,
        &["index_nested_loop_join semi"],
    ),
    case(
        "look-ups anti",
        ANTI,
        looking_up,
        &["index_nested_loop_join anti"],
    ),
    case(
        "switch",
        OF_FEW,
        switching,
        &["index_nested_loop_join .. switched="],
    ),
    case(
        "switch left",
        LEFT,
        switching,
        &["index_nested_loop_join left .. switched="],
    ),
    case(
        "switch semi",
        SEMI,
        switching,
        &["index_nested_loop_join semi .. switched="],
    ),
    case(
        "switch anti",
        ANTI,
        switching,
        &["index_nested_loop_join anti .. switched="],
    ),
    case(
        "look-ups that count",
        PARTNERS,
        counting,
        &["index_nested_loop_join ?_ .. =count(*) of"],
    ),
    case(
        "look-ups left that count",
        PARTNERS_IF_ANY,
        counting,
        &["index_nested_loop_join left .. =count(*) of"],
    ),
    case(
        "switch that counts",
        PARTNERS,
        counting_switched,
        &["index_nested_loop_join ?_ .. =count(*) of .. switched="],
    ),
    case("leapfrog_join", TRIANGLES, leaping, &["leapfrog_join"]),
    case("apply", APPLY_INNER, usual, &["apply ?k", "outer_bindings"]),
    case("apply left", APPLY_LEFT, usual, &["apply left"]),
    case("apply semi", APPLY_SEMI, usual, &["apply semi"]),
    case("apply anti", APPLY, usual, &["apply anti"]),
    case("apply mark", APPLY_MARK, usual, &["apply mark"]),
    case(
        "parameterized_join",
        PARAMETERS,
        with_parameters,
        &["parameterized_join ?m", "parameter ?m"],
    ),
];

pub(crate) const JOINS_ON_DISK: &[Case] = &[
    stored(
        "merge_join of long groups",
        LIKES,
        merging_long_groups,
        &["merge_join .. spilled="],
    ),
    stored("hash_join", INNER, hashing, &["hash_join ?s .. spilled="]),
    stored(
        "hash_join left",
        LEFT,
        hashing,
        &["hash_join left .. spilled="],
    ),
    stored(
        "hash_join in order",
        IN_ORDER,
        hashing,
        &["slice", "hash_join left .. spilled="],
    ),
    stored(
        "hash_join semi",
        SEMI,
        hashing,
        &["hash_join semi .. spilled="],
    ),
    stored(
        "hash_join anti",
        ANTI,
        hashing,
        &["hash_join anti .. spilled="],
    ),
    stored(
        "hash_join minus",
        MINUS,
        hashing_few,
        &["hash_join minus .. spilled="],
    ),
    stored(
        "hash_join mark",
        MARK,
        hashing,
        &["hash_join mark .. spilled="],
    ),
    stored(
        "switch below a sort",
        LIKES_SORTED,
        switching_below_a_sort,
        &["index_nested_loop_join .. switched=", "sort .. spilled="],
    )
    .ordered(),
    stored(
        "common_subplan",
        TWICE,
        in_common,
        &["common_subplan .. spilled="],
    )
    .or_without_disk(),
];

pub(crate) const GROUPS: &[Case] = &[
    case("hash_aggregate", FEW_GROUPS, usual, &["hash_aggregate ?k"]),
    case(
        "hash_aggregate on disk",
        MANY_GROUPS,
        usual,
        &["hash_aggregate ?n .. spilled="],
    )
    .on_disk(),
    case(
        "distinct values on disk",
        DISTINCT_VALUES,
        usual,
        &["hash_aggregate .. spilled="],
    )
    .on_disk(),
    case(
        "GROUP_CONCAT",
        TEXTS,
        usual,
        &["hash_aggregate .. group_concat"],
    ),
    stored(
        "texts of groups on disk",
        LONG_TEXTS,
        usual,
        &["hash_aggregate .. spilled="],
    ),
    case(
        "aggregate_difference",
        DIFFERENCE,
        subtracting,
        &["aggregate_difference"],
    ),
    case(
        "aggregate_difference on disk",
        DIFFERENCE,
        subtracting_many_keys,
        &["aggregate_difference .. spilled="],
    )
    .on_disk(),
    case("index_groups", OF_INDEX, usual, &["index_groups"]),
    case("distinct", DISTINCT, usual, &["distinct"]),
    case(
        "distinct on disk",
        DISTINCT,
        usual,
        &["distinct .. spilled="],
    )
    .on_disk(),
    case("skip_distinct", SKIPPING, by_ranges, &["skip_distinct"]),
    case(
        "reduced",
        "SELECT REDUCED ?k { ?s :kind ?k ; :tag ?t }",
        usual,
        &["reduced"],
    ),
    case("construct", CONSTRUCT, usual, &["construct"]),
    case("construct on disk", CONSTRUCT, usual, &["construct"]).on_disk(),
    case(
        "describe",
        "DESCRIBE ?s { ?s :tag :t3 }",
        usual,
        &["describe"],
    ),
    case("common_subplan", TWICE, in_common, &["common_subplan"]),
    case("extend", COMPUTED, usual, &["extend"]),
    case("extend on disk", COMPUTED, usual, &["extend"]).on_disk(),
];

pub(crate) const ORDERS_AND_PATHS: &[Case] = &[
    case("sort", SORT, usual, &["sort desc ?t"]).ordered(),
    case("sort on disk", SORT, usual, &["sort desc ?t .. spilled="])
        .ordered()
        .on_disk(),
    case("sort by what is computed", BY_COMPUTED, usual, &["sort"]).ordered(),
    case(
        "sort by what is computed on disk",
        BY_COMPUTED,
        usual,
        &["sort .. spilled="],
    )
    .ordered()
    .on_disk(),
    case("top_k", TOP_FEW, usual, &["top_k 60"]).ordered(),
    case(
        "top_k on disk",
        TOP_MANY,
        usual,
        &["top_k 1000 .. spilled="],
    )
    .ordered()
    .on_disk(),
    case(
        "range_sort",
        RANGES,
        by_ranges,
        &["range_sort 900 .. ranges="],
    )
    .ordered(),
    case(
        "range_sort on disk",
        RANGES,
        by_ranges,
        &["range_sort 900 .. spilled="],
    )
    .ordered()
    .on_disk(),
    case(
        "path_search",
        PATH_FROM_ONE,
        usual,
        &["path_search from subject"],
    ),
    case(
        "path_search of both ends",
        PATH_OF_BOTH,
        usual,
        &["path_search from both"],
    ),
    case(
        "path_search from all",
        PATHS,
        usual,
        &["path_search .. looked_up="],
    ),
    case(
        "path_search in memory",
        PATHS,
        read_into_memory,
        &["path_search .. adjacency="],
    )
    // What another one has read would be found.
    .planned_anew(),
    case(
        "path_search in the memory of an earlier one",
        PATHS,
        read_into_memory,
        &["path_search .. adjacency_kept="],
    )
    .run_before(),
    case(
        "path_search on disk",
        PATHS_OF_SOME,
        usual,
        &["path_search .. spilled="],
    )
    .on_disk(),
];

pub(crate) const PLANNING: &[Case] = &[
    case(
        "samples",
        MANY_WAYS,
        |options| options.forced.samples = Some(true),
        &[],
    )
    .planned_anew(),
    case(
        "characteristic sets",
        MANY_WAYS,
        |options| options.forced.sets = Some(true),
        &[],
    )
    .planned_anew(),
    case(
        "top values",
        MANY_WAYS,
        |options| options.forced.top_values = Some(true),
        &[],
    )
    .planned_anew(),
    case(
        "ranges of texts that begin alike",
        PREFIX_OF_TEXTS,
        usual,
        &["index_scan .. ?t in "],
    )
    .planned_anew(),
    case(
        "numbers of texts",
        NUMBERS_OF_TEXTS,
        remembering,
        &["hash_aggregate ?k"],
    )
    .planned_anew(),
];

/// More than one thread must run each of them.
pub(crate) const THREADS: &[Case] = &[
    case("merge_join by threads", INNER, merging, &["merge_join"]).by_threads(),
    case("hash_join by threads", LEFT, hashing, &["hash_join left"]).by_threads(),
    case(
        "path_search by threads",
        PATHS,
        read_into_memory,
        &["path_search .. sweepers="],
    )
    .planned_anew()
    .by_threads(),
    case(
        "hash_join in partitions",
        TWO_KEYS,
        hashing,
        &["hash_join left .. partitions="],
    )
    .by_threads(),
    case(
        "hash_join by threads on disk",
        LEFT,
        hashing,
        &["hash_join left .. spilled="],
    )
    .by_threads()
    .on_disk(),
    case("key filter by threads", INNER, filtering, &["hash_join"]).by_threads(),
    case("switch by threads", LEFT, switching, &["switched="]).by_threads(),
    case(
        "leapfrog_join by threads",
        TRIANGLES,
        leaping,
        &["leapfrog_join"],
    )
    .by_threads(),
    case(
        "groups by threads",
        MANY_GROUPS,
        hashing,
        &["hash_aggregate"],
    )
    .by_threads(),
    case(
        "groups by threads on disk",
        MANY_GROUPS,
        hashing,
        &["hash_aggregate", "hash_join ?s .. spilled="],
    )
    .by_threads()
    .on_disk(),
    case("sort by threads", SORT, usual, &["sort desc ?t"])
        .by_threads()
        .ordered(),
    case(
        "sort by threads on disk",
        SORT,
        usual,
        &["sort desc ?t .. spilled="],
    )
    .by_threads()
    .ordered()
    .on_disk(),
    case(
        "union by threads",
        BOTH,
        usual,
        &["hash_aggregate ?x", "union"],
    )
    .by_threads(),
    case("distinct by threads", DISTINCT, hashing, &["distinct"]).by_threads(),
    case("top_k by threads", TOP_FEW, usual, &["top_k 60"])
        .by_threads()
        .ordered(),
    case(
        "range_sort by threads",
        RANGES,
        by_ranges,
        &["range_sort 900 .. ranges="],
    )
    .by_threads()
    .ordered(),
    case(
        "common_subplan by threads",
        TWICE,
        in_common,
        &["common_subplan"],
    )
    .by_threads(),
    case(
        "aggregate_difference by threads",
        DIFFERENCE,
        subtracting,
        &["aggregate_difference"],
    )
    .by_threads(),
    case(
        "parameterized_join by threads",
        PARAMETERS,
        with_parameters,
        &["parameterized_join ?m", "parameter ?m"],
    )
    .by_threads(),
    case(
        "look-ups that count by threads",
        PARTNERS_OF_MANY,
        counting,
        &["index_nested_loop_join left .. =count(*) of"],
    )
    .by_threads(),
    case(
        "term memo by threads",
        CONTAINS_OF_FEW,
        remembering,
        &["conditions known from earlier rows"],
    )
    .by_threads(),
    case("apply by threads", APPLY_TO_MANY, usual, &["apply anti"]).by_threads(),
    case(
        "look-ups of what one thread reads",
        HANDED,
        looking_up,
        &["index_nested_loop_join", "slice limit 900"],
    )
    .by_threads(),
    case(
        "union with what one thread reads",
        HANDED_IN_UNION,
        looking_up,
        &["union", "slice limit 900"],
    )
    .by_threads(),
];
