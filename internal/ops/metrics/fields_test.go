package metrics

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
)

// ofNoField are the gauges that show the phase, which all others depend on, or what is counted.
var ofNoField = []string{"cdc_relay_stream_up", "cdc_relay_leader", "cdc_relay_standby", "cdc_relay_stopped", "cdc_relay_last_confirm_timestamp_seconds"}

// TestEachGaugeShowsItsOwnFields changes each field of a Snapshot, and looks which gauges change
// with it: each with one field at least, and no two with the same ones. So a new gauge is tested
// without a line of its own here.
func TestEachGaugeShowsItsOwnFields(t *testing.T) {
	before := byName(t, filled("none"))
	fields := map[string]string{} // that change a gauge, by its name
	for _, field := range fieldsOf(reflect.TypeFor[ops.Snapshot](), "") {
		if field == ".Phase" {
			continue
		}
		after := byName(t, filled(field))
		for name := range before {
			if after[name] != before[name] {
				fields[name] += field + " "
			}
		}
	}
	var names []string
	for _, g := range slices.Concat(ofEvery, ofLeader) {
		names = append(names, g.name)
	}
	for _, g := range ofSlot {
		names = append(names, g.name)
	}
	of := map[string]string{}
	for _, name := range names {
		switch own := fields[name]; {
		case slices.Contains(ofNoField, name):
		case own == "":
			t.Errorf("%s shows no field of ops.Snapshot", name)
		case of[own] != "":
			t.Errorf("%s and %s show the same fields: %s", name, of[own], own)
		default:
			of[own] = name
		}
	}
}

// byName are the lines of a scrape, by the metric.
func byName(t *testing.T, s ops.Snapshot) map[string]string {
	t.Helper()
	lines := map[string]string{}
	for _, line := range scrape(t, watched(s)) {
		name, _, _ := strings.Cut(strings.ReplaceAll(line, "{", " "), " ")
		lines[name] += line + "\n"
	}
	return lines
}

// fieldsOf are the paths of all fields of a type and of those in it, of one element of a list too.
func fieldsOf(typ reflect.Type, path string) (all []string) {
	switch {
	case typ.Kind() == reflect.Pointer, typ.Kind() == reflect.Slice:
		return append(fieldsOf(typ.Elem(), path+"*"), path)
	case typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]():
		return []string{path}
	}
	for i := range typ.NumField() {
		all = append(all, fieldsOf(typ.Field(i).Type, path+"."+typ.Field(i).Name)...)
	}
	return all
}

// filled is a leader's Snapshot in which each number and time is another one. The field at the
// path, if it is one, has another value than without: a list is empty.
func filled(different string) ops.Snapshot {
	var s ops.Snapshot
	paths := fieldsOf(reflect.TypeOf(s), "")
	var fill func(v reflect.Value, path string)
	fill = func(v reflect.Value, path string) {
		n, differs := int64(slices.Index(paths, path)+1), int64(0)
		if different == path {
			differs = 1000
		}
		switch {
		case v.Type() == reflect.TypeFor[time.Time]():
			v.Set(reflect.ValueOf(opstest.Noon.Add(-time.Duration(10*n+differs) * time.Millisecond)))
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				fill(v.Field(i), path+"."+v.Type().Field(i).Name)
			}
		case v.Kind() == reflect.Bool:
			v.SetBool(differs == 0)
		case v.CanInt():
			v.SetInt(n + differs)
		case v.CanUint():
			v.SetUint(uint64(n + differs))
		case v.CanFloat():
			v.SetFloat(float64(n + differs))
		case v.Kind() == reflect.String:
			v.SetString(map[int64]string{0: "reserved", 1000: "lost"}[differs])
		case differs > 0: // it stays nil
		case v.Kind() == reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), path+"*")
		case v.Kind() == reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), path+"*")
		case v.Kind() == reflect.Map:
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf("key"), reflect.ValueOf(n))
		}
	}
	fill(reflect.ValueOf(&s).Elem(), "")
	s.Phase = ops.Streaming
	if len(s.OtherSlots) > 0 {
		s.OtherSlots[0].Name = "other"
	}
	return s
}
