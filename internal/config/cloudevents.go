// The section sink.cloudevents: what it needs of the rest of the configuration, and the default of
// the attribute source.

package config

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/cloudevents"
)

// validateCloudEvents compares the section with the sinks that are named.
func (l *loader) validateCloudEvents(named []*sink.Driver) {
	s := &l.cfg.Sink.CloudEvents
	const mode = cloudevents.Section + ".mode"
	if !s.IsSet() {
		for _, k := range s.Keys() {
			if k.Name != mode && l.IsGiven(k.Name) && !l.IsFaulty(mode) {
				l.FaultAt(k.Name, errors.New("has no effect without "+mode+": binary or structured"))
			}
		}
		return
	}
	if l.cfg.Sink.Compat.Profile != "" {
		l.FaultAt(mode, errors.New("cannot be used with sink.compat.profile: a message has one of the two forms"))
		return
	}
	for _, d := range named {
		if d.CloudEvents == nil {
			l.FaultAt(mode, fmt.Errorf("cannot be used with sink.%s", d.Name))
			continue
		}
		for _, h := range l.cfg.Outbox.Headers {
			if of := sink.TakenBy(d.CloudEvents.Taken, h.Name); of != "" {
				l.FaultAt("outbox.headers", fmt.Errorf("has the header %q, and those of CloudEvents (%s) are written by the relay; an attribute of your own is a line of %s.extensions", h.Name, of, cloudevents.Section))
			}
		}
	}
	s.Check(l.FaultAt)
	for _, t := range s.Templates() {
		l.validateTemplate(cloudevents.Section+"."+t.Key, *t.Template)
	}
}

// nameCloudEventsSource sets the default of the attribute source. It names the database, which has
// one name on all of its servers, and what has the events there.
func (l *loader) nameCloudEventsSource() {
	const at = cloudevents.Section + ".source"
	events, s := &l.cfg.Sink.CloudEvents, &l.cfg.Source
	if !events.IsSet() || events.Source.String() != "" {
		return
	}
	var of []string
	for _, t := range s.Tables {
		of = append(of, url.PathEscape(t.String()))
	}
	if s.MessagePrefix != "" {
		of = append(of, url.PathEscape(s.MessagePrefix))
	}
	if l.IsFaulty("source.url") || l.IsFaulty("source.tables") || l.IsFaulty(at) || len(of) == 0 {
		return
	}
	if len(of) > 1 {
		l.FaultAt(at, fmt.Errorf("is not set, and events come from %s, which may have equal ids; write a source, and if ids are unique only within each of them one that tells them apart, such as /shop/{aggregate}", strings.Join(of, " and ")))
		return
	}
	text, err := s.URL.Read(context.Background())
	if err != nil {
		return // a fault already
	}
	cfg, err := pgconn.ParseConfig(text)
	if err != nil {
		return // a fault already
	}
	database := cfg.Database
	if database == "" {
		database = cfg.User // as the server does
	}
	events.Source = sink.MustTemplate("/cdc-relay/" + url.PathEscape(database) + "/" + of[0])
}
