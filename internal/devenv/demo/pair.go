// The primary and the standby of the worst day (WORST=1).

package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// startPair starts a primary and its standby. All who go to the database have both addresses and
// take the one that can be written to.
func (p *programs) startPair(ctx context.Context) error {
	bin, err := pgserver.FailoverBinDir(ctx)
	if err != nil {
		return err
	}
	// by the time of a row's commit recover orders the rows
	p.pair, err = pgserver.StartPair(ctx, pgserver.Options{BinDir: bin, Settings: map[string]string{"track_commit_timestamp": "on"}})
	if err != nil {
		return err
	}
	// No commit that the order service was told of is lost with the primary, so the verdict counts
	// all of them.
	if err := p.pair.Primary.Set(ctx, "synchronous_standby_names", "walreceiver"); err != nil {
		return err
	}
	u, err := url.Parse(p.pair.Primary.URL(database))
	if err != nil {
		return fmt.Errorf("parse the address of PostgreSQL: %w", err)
	}
	u.Host = strings.Join(p.pair.Addrs(), ",")
	u.RawQuery += "&target_session_attrs=read-write"
	p.db = u.String()
	return nil
}
