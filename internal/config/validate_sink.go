// Checks of the section sink: one broker, its settings, and the columns its templates need.

package config

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

// wantSink is the end of a fault about the choice of a sink.
func wantSink() string {
	var names []string
	for _, d := range drivers.All {
		names = append(names, d.Name)
	}
	return "want exactly one of " + strings.Join(names, ", ")
}

// validateSink keeps the one sink that is named. All that are named are validated.
func (l *loader) validateSink() {
	switch len(l.sinks) {
	case 0:
		if !l.wrongSink {
			l.Fault(document.Place{}, "sink", "none is configured; "+wantSink())
		}
	case 1:
	default:
		var names []string
		for _, m := range l.sinks {
			_, name, _ := cutLast(m.path)
			names = append(names, name)
		}
		l.Fault(l.sinks[1].where, "sink", strings.Join(names, " and ")+" are configured; "+wantSink())
	}
	var named []*sink.Driver
	for _, m := range l.sinks {
		named = append(named, m.driver())
	}
	l.validateCompat(named)
	for _, d := range named {
		l.validateDriver(d)
		l.cfg.Sink.Driver, l.cfg.Sink.Settings = d, l.sections[d.Name]
	}
	if len(named) == 1 && named[0].NoHeaders && len(l.cfg.Outbox.Headers) > 0 {
		l.FaultAt("outbox.headers", fmt.Errorf("has no effect with sink.%s, which has no headers to put these columns in; leave it out", named[0].Name))
	}
}

func (l *loader) validateDriver(d *sink.Driver) {
	section := l.sections[d.Name]
	section.Validate(&sink.Validation{Reader: &l.Reader, Section: d.Section()})
	for _, t := range section.Templates() {
		if name, fixed := t.Constant(); fixed {
			l.FaultAt(d.Section()+t.AllowKey(), t.CheckAllowed(name, d.Section()+t.Key+" sends every event"))
		}
		if l.cfg.Sink.Compat.Profile != "" {
			continue // it is not used
		}
		l.validateTemplate(d.Section()+t.Key, *t.Template)
		if t.Check != nil {
			l.FaultAt(d.Section()+t.Key, t.Check(*t.Template))
		}
	}
	if d.OwnLanes && l.IsGiven("delivery.lanes") {
		l.FaultAt("delivery.lanes", fmt.Errorf("has no effect with sink.%s, where each partition of a topic is a lane; leave it out", d.Name))
	}
}
