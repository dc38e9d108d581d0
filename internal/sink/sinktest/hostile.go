// Headers columns that are made to hurt.

package sinktest

import (
	"fmt"
	"strings"
)

// ManyHeaders is a headers column of so many members, of about eleven bytes each.
func ManyHeaders(members int) []byte {
	var doc strings.Builder
	for i := range members {
		fmt.Fprintf(&doc, `%c"h%d":1`, [...]rune{',', '{'}[max(0, 1-i)], i)
	}
	return []byte(doc.String() + "}")
}
