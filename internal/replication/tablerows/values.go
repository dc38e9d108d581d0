// Reads rows of a table without the large values of those over the limit.

package tablerows

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/replication/largerow"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// ValuesSQL returns the lengths of the values where some are left out, and then the values, and
// what they are selected from.
//
// A row over the limit, which is source.max_event_bytes (0: none), is not sent to us: the server
// measures its values, and keeps back those that the stream's reader would leave out (package
// largerow). It measures them as they would be sent, by their type's output function. A cast to
// text may be a function of the table's owner, and so may be what a type of his is compared by:
// neither is used.
func (t *Table) ValuesSQL(limit int64) (values []string, from string) {
	from, lengths := t.From+" t", []string{}
	values = append(values, "NULL::text")
	for i, c := range t.Columns {
		name := "t." + source.QuoteName(c.Name)
		lengths = append(lengths, "CASE num_nonnulls("+name+") WHEN 1 THEN octet_length(format('%s', "+name+")) END")
		if limit > 0 {
			name = fmt.Sprintf("CASE WHEN l.cdc_relay_large AND l.cdc_relay_lengths[%d] > %d THEN NULL ELSE %s END", i+1, largerow.Keep, name)
		}
		values = append(values, name)
	}
	if limit == 0 {
		return values, from
	}
	values[0] = "CASE WHEN l.cdc_relay_large THEN l.cdc_relay_lengths::text END"
	// OFFSET 0: each value is measured once. The frame of an insert has 8 bytes, and 5 for each
	// value or 1 for NULL.
	return values, from + fmt.Sprintf(` CROSS JOIN LATERAL (SELECT a.cdc_relay_lengths, 8 + (SELECT sum(coalesce(5 + x, 1)) FROM unnest(a.cdc_relay_lengths) x) > %d AS cdc_relay_large
		FROM (SELECT ARRAY[%s]::bigint[] AS cdc_relay_lengths OFFSET 0) a OFFSET 0) l`, limit, strings.Join(lengths, ", "))
}

// ReadLengths reads an array of numbers; nil: there is none.
func ReadLengths(text []byte) (lengths []int64, err error) {
	if text == nil {
		return nil, nil
	}
	for n := range strings.SplitSeq(strings.Trim(string(text), "{}"), ",") {
		length := int64(-1)
		if n != "NULL" {
			if length, err = strconv.ParseInt(n, 10, 64); err != nil {
				return nil, fmt.Errorf("read the lengths of a row: %w", err)
			}
		}
		lengths = append(lengths, length)
	}
	return lengths, nil
}
