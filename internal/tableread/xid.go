// The transaction that wrote a row.

package tableread

// WholeXID is the SQL of a transaction's id with its epoch. A row has its lower half. A row that is
// visible was written below next, the next transaction to begin, or by the transaction that looks,
// which may be a little above: so the id is the nearest below 2^24 more than next. A row that is
// older than 2^32 transactions gets too high an id: it seems newer than it is, and never settled
// when it is not.
func WholeXID(of string) string {
	return "(next + 16777216 - ((next + 16777216 - " + of + "::text::bigint) & 4294967295))"
}
