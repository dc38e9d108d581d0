// How the retry table places rows, and what is logged when that has changed.

package main

import (
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// placesOf tells the retry table how the sink that is configured places events.
func placesOf(c *config.Config, out sink.Sink, log *zap.Logger) *store.Places {
	var templates, flags []string
	for _, t := range c.Sink.Settings.Templates() {
		templates = append(templates, fmt.Sprintf("%s %q", t.Key, t.Template))
	}
	for _, part := range c.Sink.Driver.Route {
		flags = append(flags, "--"+part.Flag())
	}
	return &store.Places{
		Sink: c.Sink.Driver.Name, Templates: strings.Join(templates, ", "), Keyed: len(c.Sink.Driver.Route) > 1,
		Route: func(ev *event.Event) event.Route { return out.Route(ev) },
		Switched: func(s store.Switch) {
			if s.Placed > 0 {
				log.Warn("deferred events and dead letters had no place at this kind of broker: they go where the templates say now",
					zap.Int("events", s.Placed), zap.String("from", s.From), zap.String("to", c.Sink.Driver.Name))
			}
			if s.Cancelled > 0 {
				log.Warn("jobs that named a place at the other broker are cancelled: request them again",
					zap.Int("jobs", s.Cancelled), zap.String("from", s.From), zap.String("to", c.Sink.Driver.Name))
			}
			if s.Kept > 0 {
				log.Warn("the templates have changed: deferred events and dead letters keep the place that they had",
					zap.Int("events", s.Kept), zap.String("fix", "to send one elsewhere: cdc-relay deferred dead-letter NUMBER, cdc-relay dead-letters replay NUMBER "+strings.Join(flags, " ")))
			}
		},
	}
}
