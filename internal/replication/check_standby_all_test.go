//go:build testall

package replication

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Whatever keeps a standby from taking over is a line with a fix that works as it stands, a
// warning, or a failure where failover slots were asked for. The leader's metric says the same.
func TestCheckOfAStandby(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	bin, err := pgserver.VersionDir(18)
	await.Must(t, err)
	pair, err := pgserver.StartPair(ctx, pgserver.Options{BinDir: bin, NoFsync: true})
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, pair.Close()) })
	await.Must(t, pair.Primary.CreateDatabase(ctx, "shop"))
	b := newBench(t, pair.Primary.URL("shop"))
	b.replayed(pair)
	b.cfg.URL = several(t, b.url, pair.Standby.Addr(), pair.Primary.Addr())
	name := "standby " + pair.Standby.Addr()
	b.wantLines(map[string]string{"failover slot": b.cfg.Slot, name: "syncs slots"})

	r := b.streaming()
	b.synced(pair)
	b.wantLines(map[string]string{name: "has the slot, synced", "synchronized_standby_slots": pair.StandbySlot()})
	r.endClean()
	r = b.streaming() // it asks at once, and then every minute
	await.Until(t, "the metric to say so", func() bool {
		hosts := r.s.Snapshot().Hosts
		return len(hosts) == 1 && hosts[0].Host == pair.Standby.Addr() && hosts[0].Synced
	})
	b.settingsOfAStandby(pair, name)

	role, as := b.plainRole()
	own := b.cfg.URL
	b.cfg.URL = as(own)
	b.replayed(pair)
	b.wantLine(check.LevelOK, name, "cannot be read with this role")
	b.exec("DROP OWNED BY " + role)
	b.cfg.URL = own
	await.Until(t, "the standby to be recorded", func() bool {
		return b.text(`SELECT ($1 = ANY (standbys))::text FROM cdc_relay.slots WHERE slot = $2`, pair.StandbySlot(), b.cfg.Slot) == "true"
	})
	r.endClean()
	b.leftOver(pair)
}

// wantLines compares lines of one check, all of which are to be good.
func (b *bench) wantLines(want map[string]string) {
	b.t.Helper()
	list, err := check.Run(await.Context(b.t), b.cfg)
	await.Must(b.t, err)
	for name, words := range want {
		if !slices.ContainsFunc(list, func(f check.Finding) bool {
			return f.Name == name && f.Level == check.LevelOK && strings.Contains(f.Detail, words)
		}) {
			b.t.Errorf("no line %q is ok with %q in %+v", name, words, list)
		}
	}
}

// settingsOfAStandby takes each setting away, and has the fix bring it back.
func (b *bench) settingsOfAStandby(pair *pgserver.Pair, name string) {
	b.t.Helper()
	ctx := await.Context(b.t)
	for _, c := range []struct {
		on             *pgserver.Postgres
		setting, value string
		line, words    string
	}{
		{pair.Standby, "sync_replication_slots", "off", name, "does not sync slots"},
		{pair.Standby, "hot_standby_feedback", "off", name, "hot_standby_feedback is off"},
		{pair.Primary, "synchronized_standby_slots", "", "synchronized_standby_slots", "is empty"},
	} {
		await.Must(b.t, c.on.Set(ctx, c.setting, c.value))
		f := b.wantLine(check.LevelWarn, c.line, c.words)
		b.fixedOn(c.on, f)
	}
	b.cfg.FailoverSlot = source.FailoverOn
	good := b.standbyText(pair.Standby, "SELECT current_setting('primary_conninfo')")
	await.Must(b.t, pair.Standby.Set(ctx, "primary_conninfo", strings.Replace(good, "dbname=postgres", "", 1)))
	b.wantLine(check.LevelFail, name, "has no dbname") // as failover slots were asked for
	b.cfg.FailoverSlot = ""
	await.Must(b.t, pair.Standby.Set(ctx, "primary_conninfo", good))

	await.Must(b.t, pair.Primary.Set(ctx, "synchronized_standby_slots", "nobody"))
	b.wantLine(check.LevelFail, "synchronized_standby_slots", "no such physical slot", "nothing is delivered")
	b.wantLine(check.LevelWarn, name, "which synchronized_standby_slots of the primary does not name")
	await.Must(b.t, pair.Primary.Set(ctx, "synchronized_standby_slots", fmt.Sprintf(`"%s"`, pair.StandbySlot())))
	b.wantLines(map[string]string{name: "has the slot, synced", "synchronized_standby_slots": pair.StandbySlot()})
	b.exec(`SELECT pg_create_physical_replication_slot('backup')`)
	b.wantLine(check.LevelWarn, "synchronized_standby_slots", "does not name backup")
	b.exec(`SELECT pg_drop_replication_slot('backup')`)
}

// leftOver promotes the standby, and has the old primary come back as a standby with its own slot.
func (b *bench) leftOver(pair *pgserver.Pair) {
	b.t.Helper()
	ctx := await.Context(b.t)
	await.Must(b.t, pair.End(true))
	former, err := pair.Promote(ctx)
	await.Must(b.t, err)
	b.url = pair.Primary.URL("shop")
	b.reconnect()
	name := "standby " + former.Addr()
	b.wantLine(check.LevelWarn, name, "cannot be checked")
	await.Must(b.t, pair.Rejoin(ctx, former))
	f := b.wantLine(check.LevelWarn, name, b.cfg.Slot, "from a time when it was the primary", "no slot is synced")
	r := b.streaming()
	await.Until(b.t, "the metric to say so", func() bool {
		hosts := r.s.Snapshot().Hosts
		return len(hosts) == 1 && !hosts[0].Synced
	})
	b.fixedOn(former, f)
	// The worker that copies slots has failed at that one, and is started again 10 s later.
	_, err = former.Stop("fast")
	await.Must(b.t, err)
	await.Must(b.t, former.Start(ctx))
	b.synced(pair)
	r.endClean()
	b.wantLine(check.LevelOK, name, "has the slot, synced")
	await.Must(b.t, pair.Standby.Kill())
	await.Until(b.t, "the primary to notice", func() bool {
		f := b.finding("synchronized_standby_slots")
		return f.Level == check.LevelWarn && strings.Contains(f.Detail, "delivery waits for it")
	})
}

// fixedOn runs the SQL of a fix on its server, and wants that finding to be gone.
func (b *bench) fixedOn(on *pgserver.Postgres, f check.Finding) {
	b.t.Helper()
	where := on.Addr()
	if f.Name == "synchronized_standby_slots" {
		where = "the primary"
	}
	_, sql, named := strings.Cut(f.Fix, "in psql on "+where+": ")
	sql, ends := strings.CutSuffix(sql, ";")
	if !named || !ends {
		b.t.Fatalf("the fix is nothing to paste: %+v", f)
	}
	await.Must(b.t, pgserver.OnConn(await.Context(b.t), on.URL("postgres"), func(conn *pgx.Conn) error {
		for statement := range strings.SplitSeq(sql, "; ") {
			if _, err := conn.Exec(await.Context(b.t), statement); err != nil {
				return err
			}
		}
		return nil
	}))
	await.Until(b.t, f.Name+" to be another after "+sql, func() bool { return b.finding(f.Name).Detail != f.Detail })
}

// synced waits until the standby has the slot. Something is committed meanwhile.
func (b *bench) synced(pair *pgserver.Pair) {
	b.t.Helper()
	rows := 0
	await.Until(b.t, "the standby to have the slot", func() bool {
		rows++
		b.insert(fmt.Sprintf("row %d of %s", rows, b.url))
		usable, err := pair.Synced(await.Context(b.t), b.cfg.Slot)
		await.Must(b.t, err)
		return usable
	})
}

// replayed waits until the standby has what the primary has by now.
func (b *bench) replayed(pair *pgserver.Pair) {
	b.t.Helper()
	at := b.text(`SELECT pg_current_wal_lsn()::text`)
	await.Until(b.t, "the standby to have all of it", func() bool {
		return b.standbyText(pair.Standby, `SELECT (pg_last_wal_replay_lsn() >= '`+at+`')::text`) == "true"
	})
}

func (b *bench) standbyText(on *pgserver.Postgres, sql string) (text string) {
	b.t.Helper()
	await.Must(b.t, on.Query(await.Context(b.t), &text, sql))
	return text
}

// plainRole is a role of the pair that may replicate and use the schema, and no more.
func (b *bench) plainRole() (role string, as func(string) string) {
	b.t.Helper()
	b.exec(`CREATE ROLE plain LOGIN REPLICATION`)
	b.exec(`GRANT cdc_relay_owner TO plain`)
	return "plain", func(of string) string {
		u, err := url.Parse(of)
		await.Must(b.t, err)
		u.User = url.User("plain")
		return u.String()
	}
}
