// Tables.

package output

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table is a table for people.
type Table struct {
	Header    []string
	Rows      [][]string
	MaxWidths []int // columns of a terminal; 0: any
}

// Write aligns the columns. On a terminal long texts are cut and the header is bold; piped, every
// text is complete.
func (t *Table) Write(w io.Writer) error {
	var aligned strings.Builder
	tabs := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tabs, strings.Join(t.Header, "\t"))
	for _, row := range t.Rows {
		row = slices.Clone(row)
		for i := range row {
			row[i] = Clean(row[i])
			if IsTerminal(w) && i < len(t.MaxWidths) && t.MaxWidths[i] > 0 {
				row[i] = Cut(row[i], t.MaxWidths[i], "…")
			}
		}
		fmt.Fprintln(tabs, strings.Join(row, "\t"))
	}
	if err := tabs.Flush(); err != nil {
		return err
	}
	for i, line := range strings.Split(strings.TrimSuffix(aligned.String(), "\n"), "\n") {
		if line = strings.TrimRight(line, " "); i == 0 && HasColor(w) {
			line = "\x1b[1m" + line + "\x1b[0m"
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
