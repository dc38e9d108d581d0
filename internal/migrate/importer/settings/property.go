// A property, and a setting before its value is read.

package settings

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
)

// Property is one setting of the input.
type Property struct {
	// as the rules know it: without the prefixes of Debezium Server and of Connect's producer
	Name    string
	Written string // as it stands in its file
	File    string
	Value   output.Value
	Fault   string // why its value cannot be read: "" when it can
	Refused bool   // the verdict is cannot: nothing is made of it
}

// setting is a property under its full name, before its value is read.
type setting struct {
	name, written, file, text string
}

// SplitList splits at commas and trims, as Connect does.
func SplitList(s string) []string {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
