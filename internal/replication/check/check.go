// Package check tests the preconditions of the source side, and names a fix for each that fails.
package check

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Run tests every precondition of the source side and changes nothing. Each test has a time limit.
// One that cannot be made is a finding, and the others continue, unless PostgreSQL cannot be
// reached at all.
func Run(ctx context.Context, c source.Config) ([]Finding, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	pool, err := source.ConnectPool(&c)
	if err != nil {
		return nil, err
	}
	defer source.ClosePool(pool)
	k := checker{c: &c, pool: pool}
	if !k.reached(ctx) {
		return k.list, nil
	}
	for _, question := range []func(context.Context){
		k.direct, k.walLevel, k.replication, k.room, k.syncStandby, k.connections, k.objects,
	} {
		ctx, cancel := context.WithTimeout(ctx, questionBound)
		question(ctx)
		cancel()
	}
	return k.list, nil
}

// questionBound is how long one test may take.
const questionBound = 10 * time.Second

func (k *checker) reached(ctx context.Context) bool {
	var version string
	err := k.pool.QueryRow(ctx, `SELECT session_user::text, current_database()::text, current_setting('server_version')`).Scan(&k.user, &k.database, &version)
	return k.add("postgres", fmt.Sprintf("%s at %s, PostgreSQL %s", k.user, k.database, version), source.OrFatal(k.c, err))
}

func (k *checker) walLevel(ctx context.Context) {
	k.add("wal_level", "logical", source.CheckServer(ctx, k.pool))
}

func (k *checker) syncStandby(ctx context.Context) {
	k.add("synchronous standby", "not a candidate", slot.RefuseSyncStandby(ctx, k.pool, k.c))
}

func (k *checker) objects(ctx context.Context) {
	version, err := schema.Version(ctx, k.pool)
	if err == nil && version == 0 {
		k.missing("schema", "cdc_relay does not exist yet")
	} else {
		if err == nil {
			err = schema.CheckRights(ctx, k.pool)
		}
		k.add("schema", fmt.Sprintf("cdc_relay, version %d", version), err)
	}
	var rec *slot.Record
	if err == nil && version > 0 {
		if rec, err = slot.ReadRecord(ctx, k.pool, k.c.Slot); err != nil {
			k.add("schema", "", err)
			return
		}
	}
	if rec != nil {
		k.retryTable(ctx, rec.SystemID)
	}
	k.messages(ctx)
	tables, err := publication.FindTables(ctx, k.pool, k.c, rec == nil)
	if len(k.c.Tables) > 0 && !k.add("tables", k.fitting(ctx, tables)+": the mapping fits", err) {
		return
	}
	k.c.Tables = tables
	k.slot(ctx, rec)
}
