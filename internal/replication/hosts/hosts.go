// Package hosts asks the hosts of source.url that the relay does not read from: whether they are
// standbys that have its failover slot, for check and for the metric outbox_slot_synced.
package hosts

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Host is what another host than the primary said.
type Host struct {
	Addr string `json:"-"` // host:port, as in source.url
	Err  error  `json:"-"` // it could not be asked; then the rest is not known

	Started  string `json:"started"`   // pg_postmaster_start_time, to the microsecond
	Standby  bool   `json:"standby"`   // it can only be read
	Syncs    bool   `json:"syncs"`     // sync_replication_slots
	Feedback bool   `json:"feedback"`  // hot_standby_feedback
	SlotName string `json:"slot_name"` // primary_slot_name
	// primary_conninfo without its values; nil: this role may not read it
	Conninfo *string `json:"conninfo"`

	Slot *Slot `json:"slot"` // of our name; nil: there is none
	// failover slots that this server made itself, when it was the primary
	LeftOver []string `json:"left_over"`
}

// Slot is the slot of our name on another host.
type Slot struct {
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
func (s *Slot) Invalidated() bool { return s.WALStatus == "lost" || s.Invalidation != "" }

// NamesDatabase reports whether primary_conninfo has a dbname, which the copying of slots needs.
func (h *Host) NamesDatabase() bool {
	return h.Conninfo != nil && (strings.Contains(*h.Conninfo, "dbname=") || strings.Contains(*h.Conninfo, "://"))
}

// Several reports whether source.url has more than one host.
func Several(c *source.Config) bool {
	configs, err := c.HostConfigs()
	return err == nil && len(configs) > 1
}

// askTimeout is how long they may take, all in all. A host that is down is not waited for longer.
const askTimeout = 5 * time.Second

// Read asks each host of source.url on one connection, all at the same time, and returns what they
// said, in the order of source.url, without the server that q leads to. With a single host it asks
// nobody.
func Read(ctx context.Context, q source.Querier, c *source.Config) ([]Host, error) {
	configs, err := c.HostConfigs()
	if err != nil || len(configs) < 2 {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var here string
	if err := q.QueryRow(ctx, "SELECT "+started).Scan(&here); err != nil {
		return nil, fmt.Errorf("read pg_postmaster_start_time: %w", err)
	}
	all := make([]Host, len(configs))
	var asked sync.WaitGroup
	for i, config := range configs {
		asked.Go(func() { all[i] = ask(ctx, config, c.Slot) })
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

func ask(ctx context.Context, config *pgconn.Config, slot string) Host {
	h := Host{Addr: net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err == nil {
		defer source.CloseStream(conn)
		var answer string
		if answer, err = source.QueryText(ctx, conn, fmt.Sprintf(question, source.QuoteText(slot))); err == nil {
			err = json.Unmarshal([]byte(answer), &h)
		}
	}
	if err != nil {
		h.Err = source.OneLine(err)
	}
	return h
}

const started = `(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text`

// question is answered by every version, also by those that have no failover slots. A role that may
// not see primary_conninfo does not find it in pg_settings.
const question = `SELECT json_build_object(
	'started', ` + started + `,
	'standby', pg_is_in_recovery(),
	'syncs', current_setting('sync_replication_slots', true) IS NOT DISTINCT FROM 'on',
	'feedback', current_setting('hot_standby_feedback') = 'on',
	'slot_name', current_setting('primary_slot_name'),
	'conninfo', (SELECT regexp_replace(setting, '=\s*(''[^'']*''|\S*)', '=', 'g') FROM pg_settings WHERE name = 'primary_conninfo'),
	'slot', (SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = %s),
	'left_over', (SELECT array_agg(slot_name ORDER BY slot_name) FROM pg_replication_slots s
		WHERE slot_type = 'logical' AND to_jsonb(s)->>'failover' = 'true' AND to_jsonb(s)->>'synced' = 'false'))::text`
