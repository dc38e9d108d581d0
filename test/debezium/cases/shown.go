// What shows each difference from Debezium.

package cases

// Shown is what shows that a difference is there.
type Shown struct {
	Difference Difference
	By         []string // cases that have it, as GROUP/CASE, or tests of the repository
	Nothing    string   // why there is nothing to show, when By is empty
}

// AllShown has each difference of the tables in docs/from-debezium.md, in their order. A difference
// that cases have is shown by cases.
var AllShown = []Shown{
	{Difference: ContextHeaders, By: []string{"string/jsonb", "rabbit-headers/values"}},
	{Difference: SchemaName, By: []string{"envelope-schemas/nulls"}},
	{Difference: "header-order", Nothing: "it is another one in each process, so records are kept with their headers by name"},
	{Difference: "time-processed", Nothing: "both moments are within the run, and the records have now in their place"},
	{Difference: "time-produced", Nothing: "both clocks are read within the run, and the records have now in their place"},
	{Difference: KeylessPartition, By: []string{"string/key-null"}},
	{Difference: NumericAsObject, By: []string{"string/numeric"}},
	{Difference: NumericNaN, By: []string{"odd-values/numeric-nan", "odd-values-string/numeric-nan"}},
	{Difference: "time-zone", Nothing: "the real Debezium runs in UTC, too"},
	{Difference: "float-text", Nothing: "the real Debezium runs on Java 21 or later"},
	{Difference: "tracing", Nothing: "the real Debezium runs without the agent"},
	{Difference: "other-records", Nothing: "there is nothing to compare them with"},
	{Difference: "unroutable", By: []string{"TestCompatComesBackAsItWas"}},
	{Difference: "no-destination", By: []string{"TestDeferredCommands", "TestDeferredEventSurvivesAStop"}},
	{Difference: NoRecord, By: []string{
		"stops-route-null/row", "stops-expand-array/row", "stops-expand-huge/row",
		"stops-bytearray-text/row", "stops-bytearray-header/row", "stops-legacy-bytea/row",
		"stops-binary-text/row",
	}},
	{Difference: "no-id", By: []string{"TestUndecodable"}},
	{Difference: "no-partition", By: []string{"TestProfilePartitionThatIsNew"}},
	{Difference: "huge-expansion", By: []string{"TestExpansionsAreBounded"}},
	{Difference: HalfSurrogate, By: []string{"expand-odd/surrogate", "expand-odd-avro/surrogate"}},
	{Difference: "refused-order", By: []string{"TestLaterEventsWaitBehindADeferredEvent"}},
	{Difference: "one-id", By: []string{"TestProfileReturnTakesItsDestination"}},
	{Difference: Update, By: []string{"stops-update-fatal/row"}},
	{Difference: "delivery-mode", By: []string{"TestFaults"}},
	{Difference: "exactly-once", By: []string{"TestVerdicts"}},
	{Difference: "position", By: []string{"TestRollback"}},
	{Difference: "snapshot", By: []string{"TestInitRefusesRowsThatNobodyAskedAbout"}},
	{Difference: "queues", By: []string{"TestFaults"}},
	{Difference: "topics", By: []string{"TestDeferredEventSurvivesAStop"}},
	{Difference: "idempotence", Nothing: "the records are the same"},
	{Difference: "overlap", Nothing: "the records are the same"},
	{Difference: "observation", Nothing: "nothing of it is in a record"},
	{Difference: "tls", By: []string{"TestRabbitMQOverTLS"}},
	{Difference: RefusedTable, By: []string{
		"stops-missing-column/row", "stops-missing-key/row", "stops-timestamp-bigint/row",
		"stops-timestamptz/row", "stops-route-integer/row",
	}},
	{Difference: "column-types", By: []string{"TestMisfits", "TestTypesThatAreRefusedByName"}},
	{Difference: "infinite-default", By: []string{"TestTypesThatAreRefusedByName"}},
	{Difference: "regex", By: []string{"TestRegexRefusesByName"}},
	{Difference: "replacement", By: []string{"TestFaults"}},
	{Difference: "predicate", By: []string{"TestFaults"}},
	{Difference: "routing-key", By: []string{"TestFaults"}},
	{Difference: "converter-options", By: []string{"TestFaults"}},
	{Difference: "truths", By: []string{"TestFaults"}},
}
