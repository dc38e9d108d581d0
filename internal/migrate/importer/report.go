// The report, for people and for programs.

package importer

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
)

// Report writes what became of each property, the worst first.
func (r *Result) Report(w io.Writer) error {
	var out strings.Builder
	for _, v := range output.Verdicts {
		if r.Count(v) == 0 {
			continue
		}
		fmt.Fprintf(&out, "%s (%d)\n", v, r.Count(v))
		for _, e := range r.Entries {
			if e.Verdict == v {
				out.WriteString("  " + e.Line() + "\n")
			}
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// ReportJSON writes the same for programs. written is the file that the configuration is in, "" for
// none.
func (r *Result) ReportJSON(w io.Writer, written string) error {
	counts := map[output.Verdict]int{}
	for _, v := range output.Verdicts {
		counts[v] = r.Count(v)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Profile string                 `json:"profile"`
		Written string                 `json:"written"`
		Counts  map[output.Verdict]int `json:"counts"`
		Entries []output.Entry         `json:"entries"`
	}{r.Profile, written, counts, r.Entries})
}
