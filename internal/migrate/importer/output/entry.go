// The report's entries: what became of each property.

package output

import "strings"

// Verdict is what became of a property.
type Verdict string

// The verdicts.
const (
	Honoured   Verdict = "honoured"   // it means the same here, under its own name
	Mapped     Verdict = "mapped"     // another key of ours does what it did
	Superseded Verdict = "superseded" // nothing is set for it, and nothing is missing: Why says why
	Cannot     Verdict = "cannot"     // the relay would do something else than Debezium does
)

// Verdicts are all of them, the worst first.
var Verdicts = []Verdict{Cannot, Superseded, Mapped, Honoured}

// Entry is one line of the report. It never holds the value of a property that may be secret.
type Entry struct {
	Verdict Verdict `json:"verdict"`
	// as it is written in the file, or as it would be, where its absence matters
	Property string `json:"property"`
	File     string `json:"file,omitempty"`   // "" for one that is in no file
	Target   string `json:"target,omitempty"` // our key
	Why      string `json:"why,omitempty"`
	Warning  bool   `json:"warning,omitempty"` // to be read before the relay runs
}

// Line is the entry for people.
func (e Entry) Line() string {
	text := clean(e.Property)
	if e.File != "" {
		text += " (" + clean(e.File) + ")"
	}
	if e.Target != "" && e.Verdict != Cannot {
		text += " -> " + e.Target
	}
	if e.Why != "" {
		text += ": "
		if e.Warning {
			text += "WARNING: "
		}
		text += clean(e.Why)
	}
	return text
}

// clean makes one line of a comment.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, s)
}
