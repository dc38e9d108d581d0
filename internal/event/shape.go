// The shape of a table's columns: what a record's bytes depend on beyond the values of the row.

package event

// ColumnShape is one column of a table as the catalogue knows it.
type ColumnShape struct {
	Name    string
	TypeOID uint32
	Typmod  int32 // -1: none
	NotNull bool
	Default *string  // the default's expression as pg_get_expr prints it; nil: none
	Labels  []string // of an enum, in their order; nil: it is none
	Type    string   // the type's name, where its OID alone would tell nobody which it is
}
