// Checks that depend on several values, and the form of names and addresses.

package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/secretfile"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

// validate checks what depends on several values, and the form of names and addresses.
func (l *loader) validate() {
	l.validateSink()
	l.validateSource()
	l.nameCloudEventsSource()
	l.validateRetry()
	l.validateMirror()
	l.validateGuard()
	l.validateRetention()
	l.validateAdmin()
	if _, written := l.Given["source.tables"]; !written || !l.cfg.Outbox.ID.Mapped() || !l.cfg.Outbox.Payload.Mapped() {
		l.requireColumns("outbox", setting.Place{}, &l.cfg.Outbox)
	}
}

var slotName = lazy.Regexp(`^[a-z0-9_]{1,63}$`)

func (l *loader) validateSource() {
	s := &l.cfg.Source
	if !slotName().MatchString(s.Slot) {
		l.FaultAt("source.slot", fmt.Errorf("is %q, want 1 to 63 of a-z, 0-9 and _", s.Slot))
	}
	if s.Publication == "" || len(s.Publication) > maxIdentifier || strings.ContainsRune(s.Publication, 0) {
		l.FaultAt("source.publication", fmt.Errorf("is %q, want a name of 1 to %d bytes", s.Publication, maxIdentifier))
	}
	if strings.ContainsRune(s.MessagePrefix, 0) {
		l.FaultAt("source.message_prefix", errors.New("has a zero character, which no prefix has"))
	}
	for _, name := range slices.Sorted(maps.Keys(l.Env)) {
		key, is := strings.CutPrefix(name, "PG")
		switch value := l.Env[name]; {
		case !is || value == "" || name == "PGGSSENCMODE" && value != "require": // ignored else
		case ignored(strings.ToLower(key)):
			l.Fault(setting.Place{Variable: name}, "source.url", unsupported)
		}
	}
	if l.IsFaulty("source.url") {
		return
	}
	if !s.URL.IsSet() && l.Env["PGHOST"] == "" && l.Env["PGSERVICE"] == "" && l.Env["PGDATABASE"] == "" {
		l.FaultAt("source.url", errors.New("is not set, and neither is PGHOST, PGSERVICE or PGDATABASE"))
		return
	}
	value, err := s.URL.Read(context.Background())
	if err == nil {
		err = CheckPostgres(value)
	}
	l.FaultAt("source.url", err)
}

// ignored reports whether libpq has a setting that decides which server is trusted, and pgconn does
// not. It ignores such a variable, and sends such a key to the server, which refuses it.
func ignored(key string) bool {
	switch key {
	case "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcertmode", "sslsni", "sslnegotiation":
		return false
	case "requiressl", "requirepeer", "gssencmode", "hostaddr":
		return true
	}
	return strings.HasPrefix(key, "ssl")
}

const unsupported = "is not supported, and is not ignored, because it may be what keeps a false server away; for TLS there are sslmode, sslrootcert, sslcert, sslkey and require_auth"

// urlScheme is the beginning of a URL, also of one with too few slashes or of JDBC.
var urlScheme = lazy.Regexp(`^(?i:jdbc:)?[a-zA-Z][a-zA-Z0-9+.-]*:/+`)

// CheckPostgres says what is wrong with an address of PostgreSQL. It passes on pgconn's reason
// without the connection string that it quotes, and no reason where the string does not even fall
// into parts: that one would quote a piece of it.
func CheckPostgres(value string) error {
	cfg, err := pgconn.ParseConfig(value)
	if err == nil {
		for _, key := range slices.Sorted(maps.Keys(cfg.RuntimeParams)) {
			if ignored(key) {
				return fmt.Errorf("cannot be used: %s %s", key, unsupported)
			}
		}
		return secretfile.CheckPostgres(value)
	}
	if scheme := urlScheme().FindString(value); scheme != "" && !strings.HasPrefix(value, "postgres://") && !strings.HasPrefix(value, "postgresql://") {
		only := "; "
		if !strings.Contains(strings.ToLower(scheme), "postgres") {
			only = ", and only PostgreSQL is supported; "
		}
		return errors.New("begins with " + scheme + only + "want postgres://user:password@host:port/database")
	}
	reason := err.Error()
	if i := strings.LastIndex(reason, "`: "); i >= 0 {
		reason = reason[i+len("`: "):]
	}
	if strings.HasPrefix(reason, "failed to parse as") || strings.Contains(reason, "`") {
		return errors.New("cannot be parsed as postgres://user:password@host:port/database or as key=value (quote a value with spaces as 'a b'; in a URL's password / ? # @ : % are written %2F %3F %23 %40 %3A %25)")
	}
	return errors.New("cannot be used: " + reason)
}

func (l *loader) validateRetry() {
	r := &l.cfg.Retry
	if r.MaxBackoff >= r.Backoff || l.IsFaulty("retry.backoff") || l.IsFaulty("retry.max_backoff") {
		return
	}
	path := "retry.max_backoff"
	if l.PlaceOf(path) == (setting.Place{}) {
		path = "retry.backoff"
	}
	l.FaultAt(path, fmt.Errorf("max_backoff %s is shorter than backoff %s, which it bounds", setting.ShowDuration(r.MaxBackoff), setting.ShowDuration(r.Backoff)))
}

// validateGuard wants both keys of the guard or none: without max_bytes it would fill the disk
// itself. With less than what may be in flight it would be full before it has deferred anything.
func (l *loader) validateGuard() {
	g := l.cfg.Guard
	switch {
	case l.IsFaulty("guard.defer_at") || l.IsFaulty("guard.max_bytes"):
	case g.IsSet() && g.MaxBytes == 0:
		l.FaultAt("guard.defer_at", errors.New("needs guard.max_bytes beside it: how large the relay's own tables may become, such as 10GiB"))
	case !g.IsSet() && g.MaxBytes != 0:
		l.FaultAt("guard.max_bytes", errors.New("has no effect without guard.defer_at: how much WAL the slot may keep before events are deferred, such as 25%"))
	case g.IsSet() && !l.IsFaulty("delivery.max_in_flight") && !l.IsFaulty("delivery.max_in_flight_bytes"):
		d := l.cfg.Delivery
		if least := guard.LeastMaxBytes(d.MaxInFlight, d.MaxInFlightBytes); g.MaxBytes < least {
			l.FaultAt("guard.max_bytes", fmt.Errorf("is %s, want at least %s: what is in flight, up to delivery.max_in_flight and delivery.max_in_flight_bytes, counts as deferred",
				setting.ShowSize(g.MaxBytes), setting.ShowSize(least)))
		}
	}
}

// validateRetention wants tables to delete from, and the column with a row's transaction.
func (l *loader) validateRetention() {
	if l.cfg.Retention.IsSet() && len(l.cfg.Source.Tables) == 0 && !l.IsFaulty("source.tables") {
		l.FaultAt("retention.mode", fmt.Errorf("is %q, and source.tables names no table: there is nothing to delete", l.cfg.Retention.Mode))
	}
	for _, t := range l.cfg.Source.Tables {
		if l.cfg.Retention.IsSet() && !t.Outbox.Transaction.Mapped() {
			l.FaultAt("retention.mode", fmt.Errorf("is %q, and outbox.transaction of %s.%s is empty: nothing says which of its rows were delivered",
				l.cfg.Retention.Mode, t.Schema, t.Name))
		}
	}
}

// validateMirror wants a fixed exchange or topic, whichever the sink's broker has.
func (l *loader) validateMirror() {
	const section = "dead_letters.mirror."
	if len(l.sinks) != 1 {
		return // reported already, and the broker is unknown
	}
	d := l.cfg.Sink.Driver
	for _, key := range drivers.PartKeys() {
		if name := *l.cfg.DeadLetters.Mirror[key]; name != "" {
			l.FaultAt(section+key, validateMirrorPart(d, key, name))
		}
	}
	if !l.cfg.DeadLetters.Mirror.IsSet() {
		return
	}
	for _, t := range l.cfg.Sink.Settings.Templates() {
		l.FaultAt(d.Section()+t.AllowKey(), t.CheckAllowed(*l.cfg.DeadLetters.Mirror[t.Key], section+t.Key+" sends the copies of dead letters"))
	}
}

func validateMirrorPart(d *sink.Driver, key, name string) error {
	if len(d.Route) == 0 {
		return fmt.Errorf("has no effect with sink.%s, which has no second place; leave it out", d.Name)
	}
	var keys []string
	for _, p := range d.Route {
		switch keys = append(keys, p.Key); {
		case p.Key != key:
		case strings.ContainsAny(name, "{}"):
			return fmt.Errorf("is %q, want a plain name, not a template: all dead letters are mirrored to one place", name)
		case p.Limit > 0 && len(name) > p.Limit:
			return fmt.Errorf("has %d bytes, the most it may have is %d", len(name), p.Limit)
		case p.Check != nil:
			return p.Check(name)
		default:
			return nil
		}
	}
	return fmt.Errorf("is %s's; with sink.%s the mirror is dead_letters.mirror.%s", drivers.ByRoutePart(key).Broker, d.Name, strings.Join(keys, " and "))
}

// wantSink is the end of the message of a fault about the choice of a sink: it lists the sinks.
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
			l.Fault(setting.Place{}, "sink", "none is configured; "+wantSink())
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
	l.validateCloudEvents(named)
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
