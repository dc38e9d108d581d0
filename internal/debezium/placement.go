// table.fields.additional.placement: which columns become headers, members of an envelope, or the
// partition.

package debezium

import (
	"errors"
	"fmt"
	"strings"
)

// placement is one entry of the list.
type placement struct {
	column string
	where  placed
	alias  string // of a header or member; the column's name when there is none
}

type placed uint8

const (
	inHeader placed = iota
	inEnvelope
	asPartition
)

var placements = map[string]placed{"header": inHeader, "envelope": inEnvelope, "partition": asPartition}

// envelopePayload is the name of the payload in an envelope.
const envelopePayload = "payload"

// parsePlacement reads column:placement[:alias], separated by commas, with the white space that
// Debezium allows.
func parsePlacement(list string) ([]placement, error) {
	var found []placement
	members := map[string]bool{envelopePayload: true}
	for entry := range strings.SplitSeq(strings.TrimRight(list, ","), ",") {
		parts := strings.Split(strings.TrimRight(entry, ":"), ":")
		if len(parts) != 2 && len(parts) != 3 {
			return nil, fmt.Errorf("has %q, want column:placement or column:placement:alias, separated by commas", entry)
		}
		f := placement{column: strings.TrimSpace(parts[0])}
		f.alias = f.column
		if len(parts) == 3 {
			f.alias = strings.TrimSpace(parts[2])
		}
		where, known := placements[strings.ToLower(strings.TrimSpace(parts[1]))]
		switch {
		case !known:
			return nil, fmt.Errorf("has the placement %q, want header, envelope or partition", strings.TrimSpace(parts[1]))
		case f.column == "" || f.alias == "":
			return nil, errors.New("has an entry without a name of a column or alias")
		}
		if f.where = where; where == inEnvelope {
			if members[f.alias] {
				return nil, fmt.Errorf("has %q in the envelope twice", f.alias)
			}
			members[f.alias] = true
		}
		found = append(found, f)
	}
	return found, nil
}
