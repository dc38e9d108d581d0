// The hosts of source.url that the relay does not read from: each is asked whether it is a standby
// that has the relay's failover slot. check and the metric cdc_relay_slot_synced tell with this
// whether the relay could go on after a promotion.

package source

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Host is the answer of a configured host that is not the primary.
type Host struct {
	Addr string `json:"-"` // host:port, as in source.url
	Err  error  `json:"-"` // why the host could not be asked; then the rest is not known

	Started  string `json:"started"`   // pg_postmaster_start_time, to the microsecond
	Standby  bool   `json:"standby"`   // it can only be read
	Syncs    bool   `json:"syncs"`     // sync_replication_slots
	Feedback bool   `json:"feedback"`  // hot_standby_feedback
	SlotName string `json:"slot_name"` // primary_slot_name
	// Conninfo is primary_conninfo without its values; nil means that this role may not read it
	Conninfo *string `json:"conninfo"`

	Slot *HostSlot `json:"slot"` // of our name; nil: there is none
	// LeftOver are failover slots that this server made itself, when it was the primary
	LeftOver []string `json:"left_over"`
}

// HostSlot is the slot of our name on another host.
type HostSlot struct {
	Failover     bool   `json:"failover"`
	Synced       bool   `json:"synced"`
	Temporary    bool   `json:"temporary"`
	WALStatus    string `json:"wal_status"`
	Invalidation string `json:"invalidation_reason"`
}

// Usable reports whether a relay could go on with the slot if this host were promoted now.
func (h *Host) Usable() bool {
	return h.Err == nil && h.Standby && h.Slot != nil && h.Slot.Synced && !h.Slot.Temporary && !h.Slot.Invalidated()
}

// Invalidated reports whether the server has given the slot up.
func (s *HostSlot) Invalidated() bool { return s.WALStatus == "lost" || s.Invalidation != "" }

// NamesDatabase reports whether primary_conninfo has a dbname, which the copying of slots needs.
func (h *Host) NamesDatabase() bool {
	return h.Conninfo != nil && (strings.Contains(*h.Conninfo, "dbname=") || strings.Contains(*h.Conninfo, "://"))
}

// SeveralHosts reports whether source.url has more than one host.
func SeveralHosts(c *Config) bool {
	configs, err := c.hostConfigs(context.Background())
	return err == nil && len(configs) > 1
}

// hostsTimeout is how long all hosts together may take to answer. A host that is down is not waited
// for longer.
const hostsTimeout = 5 * time.Second

// ReadHosts asks all hosts of source.url at the same time, each on one connection, and returns what
// they said, in the order of source.url. The server that q leads to is left out. With a single host
// in source.url nobody is asked.
func ReadHosts(ctx context.Context, q Querier, c *Config) ([]Host, error) {
	configs, err := c.hostConfigs(ctx)
	if err != nil || len(configs) < 2 {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, hostsTimeout)
	defer cancel()
	var here string
	if err := Ask(ctx, q, "read pg_postmaster_start_time", "SELECT "+startedSQL).Scan(&here); err != nil {
		return nil, err
	}
	all := make([]Host, len(configs))
	var asked sync.WaitGroup
	for i, config := range configs {
		asked.Go(func() { all[i] = askHost(ctx, config, c.Slot) })
	}
	asked.Wait()
	var others []Host
	for _, h := range all {
		// Two servers do not start in the same microsecond: this is the primary, by whatever name.
		if h.Err != nil || h.Standby || h.Started != here {
			others = append(others, h)
		}
	}
	return others, nil
}

// askHost asks one host. An error is in the answer.
func askHost(ctx context.Context, config *pgconn.Config, slot string) Host {
	h := Host{Addr: net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err == nil {
		defer CloseStream(conn)
		var answer string
		if answer, err = QueryText(ctx, conn, fmt.Sprintf(hostQuestion, QuoteText(slot))); err == nil {
			err = json.Unmarshal([]byte(answer), &h)
		}
	}
	if err != nil {
		h.Err = OneLine(err)
	}
	return h
}

// startedSQL is when the server started, to the microsecond; by it a server is recognized under
// another name.
const startedSQL = `(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text`

// hostQuestion is answered by every version, also by those that have no failover slots. For a role
// that may not see primary_conninfo, it is not in pg_settings.
const hostQuestion = `SELECT json_build_object(
	'started', ` + startedSQL + `,
	'standby', pg_is_in_recovery(),
	'syncs', current_setting('sync_replication_slots', true) IS NOT DISTINCT FROM 'on',
	'feedback', current_setting('hot_standby_feedback') = 'on',
	'slot_name', current_setting('primary_slot_name'),
	'conninfo', (SELECT regexp_replace(setting, '=\s*(''[^'']*''|\S*)', '=', 'g') FROM pg_settings WHERE name = 'primary_conninfo'),
	'slot', (SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = %s),
	'left_over', (SELECT array_agg(slot_name ORDER BY slot_name) FROM pg_replication_slots s
		WHERE slot_type = 'logical' AND to_jsonb(s)->>'failover' = 'true' AND to_jsonb(s)->>'synced' = 'false'))::text`

// hostConfigs are the connections that source.url offers, one for each of its hosts, in its order:
// each goes to its host alone, whatever server is there.
func (c *Config) hostConfigs(ctx context.Context) ([]*pgconn.Config, error) {
	all, err := parseSourceURL(c)
	if err != nil {
		return nil, err
	}
	if err := setPassword(ctx, c, all); err != nil {
		return nil, err
	}
	maps.Copy(all.RuntimeParams, Settings(c.ApplicationName()))
	all.ValidateConnect = nil
	attempts := append([]*pgconn.FallbackConfig{{Host: all.Host, Port: all.Port, TLSConfig: all.TLSConfig}}, all.Fallbacks...)
	var hosts []*pgconn.Config
	for _, a := range attempts { // one host has several of them, with TLS and without
		i := slices.IndexFunc(hosts, func(h *pgconn.Config) bool { return h.Host == a.Host && h.Port == a.Port })
		if i >= 0 {
			hosts[i].Fallbacks = append(hosts[i].Fallbacks, a)
			continue
		}
		one := all.Copy()
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = a.Host, a.Port, a.TLSConfig, nil
		hosts = append(hosts, one)
	}
	return hosts, nil
}
