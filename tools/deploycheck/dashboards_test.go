package deploycheck

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

//nolint:staticcheck // the newer schema is for Grafana's next API; files of this one are what all versions import
func decodeDashboard(text string) (d dashboard.Dashboard, err error) {
	err = d.UnmarshalJSONStrict([]byte(text))
	// it returns an empty list for no error
	if found := cog.BuildErrors(nil); errors.As(err, &found) && len(found) == 0 {
		err = nil
	}
	return d, err
}

// knowKinds registers the kinds of panels and queries that our dashboards use, each with fields of
// its own. Grafana has many more (cog/plugins): compiling them took longer than all the rest of
// this module.
func knowKinds() {
	known := cog.NewRuntime()
	for _, kind := range []variants.PanelcfgConfig{
		heatmap.VariantConfig(), stat.VariantConfig(), statetimeline.VariantConfig(), table.VariantConfig(), timeseries.VariantConfig(),
	} {
		known.RegisterPanelcfgVariant(kind)
	}
	known.RegisterDataqueryVariant(prometheus.VariantConfig())
}

// A dashboard has no field that Grafana does not know, none of a wrong type, and none is missing:
// by Grafana's own types, also for what belongs to one kind of panel or to a query.
func TestDashboards(t *testing.T) {
	knowKinds()
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("find dashboards: %v, %v; want three", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			d, err := decodeDashboard(string(text))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range d.Panels {
				if p.Panel == nil {
					continue
				}
				if _, known := cog.ConfigForPanelcfgVariant(p.Panel.Type); !known {
					t.Errorf("panel %q is of type %s, which is none of those that are known here", *p.Panel.Title, p.Panel.Type)
				}
			}
			for name, broken := range map[string]string{
				"a field of the dashboard": strings.Replace(string(text), `"uid":`, `"uidd":`, 1),
				"a field of a panel":       strings.Replace(string(text), `"gridPos":`, `"gridpos":`, 1),
				"an option":                strings.Replace(string(text), `"graphMode":`, `"graphmode":`, 1),
				"a field's style":          strings.Replace(string(text), `"drawStyle":`, `"drawstyle":`, 1),
				"a query":                  strings.Replace(string(text), `"legendFormat":`, `"legend":`, 1),
				"a type":                   strings.Replace(string(text), `"schemaVersion": 42`, `"schemaVersion": "42"`, 1),
			} {
				if _, err := decodeDashboard(broken); broken == string(text) || err == nil {
					t.Errorf("%s may be wrong", name)
				}
			}
		})
	}
}
