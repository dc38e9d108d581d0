package replication

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// What Check asks of the server itself.

// direct finds a connection pooler in between: it may keep back the settings that the relay sends, and the number of the
// backend that it tells its clients is its own, and not that of the one that answers.
func (k *checker) direct(ctx context.Context) {
	const name = "connection pooler"
	conn, err := k.pool.Acquire(ctx)
	if err != nil {
		k.add(name, "", err)
		return
	}
	defer conn.Release()
	var pid uint32
	err = conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid)
	var lost []string
	if err == nil {
		lost, err = keptBack(ctx, conn, k.c)
	}
	if err != nil {
		k.add(name, "", err)
		return
	}
	k.between(conn.Conn().PgConn().PID() == pid, lost)
}

// between judges what direct has found. The proxy of a hosting service hands on everything but the number, and harms nothing.
func (k *checker) between(samePID bool, lost []string) {
	const name = "connection pooler"
	switch {
	case len(lost) > 0:
		k.fail(name, "something between the relay and PostgreSQL, as PgBouncer is, keeps back settings of the relay's sessions: "+strings.Join(lost, ", "), mendPooler)
	case !samePID:
		k.warn(name, "something between the relay and PostgreSQL answers for it. A proxy that gives each connection a session of its own does no harm; a pooler that hands sessions out does",
			"if it is a pooler, "+mendPooler)
	default:
		k.add(name, "none in between", nil)
	}
}

const mendPooler = "give source.url the address of PostgreSQL itself, past the pooler; the application may go on using it"

// poolerRefused is what to do when a pooler refuses what only PostgreSQL itself takes.
func poolerRefused(err error) string {
	switch code := pgCode(err); {
	case code == "08P01" && strings.Contains(err.Error(), "startup parameter"), // PgBouncer knows few of them
		code == "42P05", code == "26000", // prepared statements that are somebody else's, or somewhere else
		code == "42601" && strings.Contains(err.Error(), "IDENTIFY_SYSTEM"): // its server is no walsender
		return mendPooler
	}
	return ""
}

// keptBack are the settings that the relay has sent with the connection, and that are not in force.
func keptBack(ctx context.Context, q querier, c *Config) ([]string, error) {
	sent := settings(c.applicationName())
	rows, err := q.Query(ctx, `SELECT n, coalesce(current_setting(n, true), '') FROM unnest($1::text[]) n`, slices.Sorted(maps.Keys(sent)))
	if err != nil {
		return nil, err
	}
	var name, value string
	var lost []string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		if value != sent[name] {
			lost = append(lost, fmt.Sprintf("%s is %q", name, value))
		}
		return nil
	})
	return lost, err
}

func (k *checker) replication(ctx context.Context) {
	conn, err := connectStream(ctx, k.c)
	if err != nil {
		k.add("replication connection", "", fatalOr(k.c, err))
		return
	}
	defer closeStream(conn)
	_, err = identify(ctx, conn)
	if !k.add("replication connection", "this role may replicate", fatalOr(k.c, err)) {
		return
	}
	k.commit.value, k.commit.err = askText(ctx, conn, `SELECT setting FROM pg_catalog.pg_settings WHERE name = 'synchronous_commit'
		AND source IN ('default', 'configuration file', 'command line', 'environment variable')
		UNION ALL SELECT 'on' LIMIT 1`)
	const name = "wal_sender_timeout"
	answer, err := askText(ctx, conn, `SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'`)
	var own string
	if err == nil {
		err = k.pool.QueryRow(ctx, `SELECT current_setting('wal_sender_timeout')`).Scan(&own)
	}
	if k.unasked(name, err) {
		return
	}
	got, want := answer+" ms", strconv.FormatInt(k.c.WALSenderTimeout.Milliseconds(), 10)+" ms"
	detail := fmt.Sprintf("%s for the relay's own sessions; the server's is %s", k.c.WALSenderTimeout, own)
	if own == "0" {
		detail += ", by which it would never notice that the network was cut"
	}
	if got != want {
		k.warn(name, fmt.Sprintf("is %s in the relay's session, which has asked for %s: so long does a silent cut of the network go unnoticed (0: for ever)", got, want), mendPooler)
		return
	}
	k.add(name, detail, nil)
}

// room looks for a free slot and a free sender. Ours are not counted: they may be there already.
func (k *checker) room(ctx context.Context) {
	var slots, maxSlots, senders, maxSenders int
	err := k.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name <> $1), current_setting('max_replication_slots')::int,
		(SELECT count(*) FROM pg_stat_replication WHERE application_name IS DISTINCT FROM $2), current_setting('max_wal_senders')::int`,
		k.c.Slot, k.c.applicationName()).Scan(&slots, &maxSlots, &senders, &maxSenders)
	if err != nil {
		k.unasked("replication slots", err)
		return
	}
	if detail := fmt.Sprintf("%d of %d used by others", slots, maxSlots); slots < maxSlots {
		k.add("replication slots", detail, nil)
	} else {
		k.fail("replication slots", detail+": there is none for the relay",
			fmt.Sprintf("ALTER SYSTEM SET max_replication_slots = %d, then restart the server; or drop one that nobody uses (SELECT slot_name, active FROM pg_replication_slots)", maxSlots+4))
	}
	detail := fmt.Sprintf("%d of %d used by others", senders, maxSenders)
	if senders+1 >= maxSenders {
		k.warn("wal senders", detail+": the relay needs one, and a second relay another while it starts",
			fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d, then restart the server", max(10, maxSenders+4)))
		return
	}
	k.add("wal senders", detail, nil)
}

// keeping looks for limits that end slots, and how near ours is to them.
func (k *checker) keeping(ctx context.Context) {
	const name = "max_slot_wal_keep_size"
	var keep, idle string
	var limit, kept int64 // in MB, as the setting is
	err := k.pool.QueryRow(ctx, `SELECT current_setting('max_slot_wal_keep_size'), (SELECT setting::bigint FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),
		coalesce((SELECT ceil(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) / 1048576)::bigint FROM pg_replication_slots WHERE slot_name = $1), 0),
		coalesce(current_setting('idle_replication_slot_timeout', true), '0')`, k.c.Slot).Scan(&keep, &limit, &kept, &idle)
	if k.unasked(name, err) {
		return
	}
	detail := fmt.Sprintf("%s, and %d MB are kept for the slot: one that falls further behind is lost, with what it had not delivered, and the disk does not fill", keep, kept)
	switch {
	case limit < 0:
		k.add(name, fmt.Sprintf("no limit, and %d MB are kept for the slot: one that stands still keeps all WAL, so watch the disk", kept), nil)
	case kept*10 > limit*7:
		k.warn(name, detail+". Mend what holds the slot back; until then, as far as the disk has room, raise it",
			fmt.Sprintf("ALTER SYSTEM SET max_slot_wal_keep_size = '%dMB'; SELECT pg_reload_conf()", 2*max(limit, kept)))
	default:
		k.add(name, detail, nil)
	}
	if idle != "0" {
		k.warn("idle_replication_slot_timeout", "is "+idle+": a slot that no relay reads for so long is lost, and with it what it had not delivered",
			"ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf()")
	}
}

// clock measures how far the server's clock and ours are apart: ages and latencies are differences of the two.
func (k *checker) clock(ctx context.Context) {
	const name = "clock"
	var ahead, doubt time.Duration
	for i := range 5 {
		var server time.Time
		sent := time.Now()
		err := k.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&server)
		if k.unasked(name, err) {
			return
		}
		if a, d := skew(sent, server, time.Now()); i == 0 || d < doubt {
			ahead, doubt = a, d
		}
	}
	where := "ahead of"
	if ahead < 0 {
		where = "behind"
	}
	detail := fmt.Sprintf("PostgreSQL's is %s %s this machine's, give or take %s", ahead.Abs().Round(time.Microsecond), where, doubt.Round(time.Microsecond))
	if ahead.Abs()-doubt > clockTolerance {
		k.warn(name, detail+": latencies, lags and ages are wrong by that", "timedatectl set-ntp true (on both machines)")
		return
	}
	k.add(name, detail, nil)
}

// clockTolerance is how far apart the clocks may be.
const clockTolerance = 100 * time.Millisecond

// skew is how far the server's clock is ahead of ours when it answered between the two times, and how far off that may be.
func skew(sent, server, received time.Time) (ahead, doubt time.Duration) {
	sent, received = sent.Round(0), received.Round(0) // the wall clock's
	half := received.Sub(sent) / 2
	return server.Sub(sent.Add(half)), half.Abs()
}
