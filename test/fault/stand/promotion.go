// Promotions: the database is a pair of servers, and its standby becomes the primary under load.

package stand

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// Promotion is a way in which the primary ends.
type Promotion struct {
	Name    string
	planned bool // stopped in order; else killed
	lagging bool // while the standby stands still
}

// The ways.
var (
	Planned       = Promotion{Name: "planned", planned: true}
	Killed        = Promotion{Name: "killed"}
	KilledLagging = Promotion{Name: "killed, standby lagging", lagging: true}
)

// onPair is a stand on a pair of servers of a major version, which routes: so that the retry table
// is in use. order is that of the two places in source.url.
func onPair(t *testing.T, kind Kind, version int, order ...int) (*Stand, *pgserver.Pair) {
	t.Helper()
	place := kind.routed(t)
	bin, err := pgserver.VersionDir(version)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	// recover keeps the order of commits with it, see Early
	pair, err := pgserver.StartPair(ctx, pgserver.Options{BinDir: bin, NoFsync: true, Settings: map[string]string{"track_commit_timestamp": "on"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pair.Close(); err != nil {
			t.Error(err)
		}
	})
	const db = "shop"
	if err := pair.Primary.CreateDatabase(ctx, db); err != nil {
		t.Fatal(err)
	}
	// a relay that asks the standby first would end: the database does not exist there
	if err := pair.AwaitDatabase(ctx, db); err != nil {
		t.Fatal(err)
	}
	s := bare(t, pair.Primary.URL(db), pair.Primary.Addr(), place)
	for _, i := range order {
		s.Hosts = append(s.Hosts, pair.Addrs()[i])
	}
	s.Must(load.CreateOutbox(s.Context(), s.DB))
	s.Route()
	return s, pair
}

// Promoted is a stand whose relays live through promotions.
type Promoted struct {
	*Stand
	Pair   *pgserver.Pair
	relays []*runner.Relay
	random *rand.Rand
	stop   func() // of the load
	made   bool   // the destination "later"
	bound  int    // of the repeats
	times  []time.Duration
	early  []string // what became of each early promotion
}

// BeginPromotions starts a pair of servers of a major version, two relays, and the load, some of
// whose events are deferred. order is that of the two hosts in source.url.
func BeginPromotions(t *testing.T, kind Kind, version int, seed uint64, order ...int) *Promoted {
	t.Helper()
	s, pair := onPair(t, kind, version, order...)
	s.T.Logf("seed %d", seed)
	s.Retry = "backoff: 100ms, max_backoff: 1s"
	s.Kinds = []load.Kind{s.ToLater(0.3, s.Keys/2)}
	p := &Promoted{Stand: s, Pair: pair, random: rand.New(rand.NewPCG(seed, 21))}
	leader := s.Launch()
	s.Leads(leader)
	s.RefuseLater()
	p.relays = []*runner.Relay{leader, s.Start()}
	p.stop = s.Load(300)
	s.AwaitRows(checker.Deferred, 10)
	return p
}

// Round promotes the standby at a moment that the seed picks, waits until the relays have gone on
// by themselves, and makes a new standby.
func (p *Promoted) Round(how Promotion) {
	p.T.Helper()
	p.Must(p.Pair.AwaitSynced(p.Context(), p.Slot))
	p.recorded()
	p.More(1 + p.random.IntN(300))
	p.end(how)
	synced := p.standing()
	began := time.Now()
	former, err := p.Pair.Promote(p.Context())
	p.Must(err)
	p.Must(former.Close())
	var id string
	p.Query([]any{&id}, InsertReturning("outbox", "order", fmt.Sprintf("after promotion %d", len(p.times))))
	p.Must(p.Consumer.WaitIDs(p.Context(), []string{id}))
	p.times = append(p.times, time.Since(began))
	p.T.Logf("%s: first event %s after the promotion began; at most %d repeats, from %s on", how.Name, p.times[len(p.times)-1].Round(time.Millisecond), p.bound, synced)
	p.Must(p.Pair.Join(p.Context()))
}

// recorded waits until the leader has written down that the primary waits for the standby, and the
// standby has that.
func (p *Promoted) recorded() {
	p.T.Helper()
	on := p.Pair.Standby.URL(p.Database())
	p.Until("the standby to be recorded", func() (is bool) {
		p.Must(pgserver.OnConn(p.Context(), on, func(conn *pgx.Conn) error {
			return conn.QueryRow(p.Context(), `SELECT $2 = ANY (standbys) FROM cdc_relay.slots WHERE slot = $1`, p.Slot, p.Pair.StandbySlot()).Scan(&is)
		}))
		return is
	})
}

// end ends the primary.
func (p *Promoted) end(how Promotion) {
	p.T.Helper()
	if !how.lagging {
		p.Must(p.Pair.End(how.planned))
		return
	}
	thaw, err := p.Pair.Standby.Freeze()
	p.Must(err)
	p.Until("delivery to be held back for the standby", func() bool {
		return slices.ContainsFunc(p.relays, func(r *runner.Relay) bool {
			_, body, err := r.Get(p.Context(), "/api/v1/status")
			return err == nil && strings.Contains(body, fmt.Sprintf(`"waiting_for_standby":[%q]`, p.Pair.StandbySlot()))
		})
	})
	p.Must(p.Pair.End(how.planned))
	p.Must(thaw())
}

// standing waits, while there is no primary, until nothing is on its way any more, and adds what
// has arrived beyond the position of the standby's slot to the bound.
func (p *Promoted) standing() (synced string) {
	p.T.Helper()
	p.Move(p.Pair.Standby)
	p.Until("the standby to have replayed what it has", func() (all bool) {
		p.Query([]any{&all}, `SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver) AND pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()`)
		return all
	})
	p.arrivesNothing()
	at := p.Flush()
	p.bound += p.Since(at)
	return at.String()
}

// Fix makes the destination that has refused until now: what is deferred begins to be sent, and
// nothing is deferred any more.
func (p *Promoted) Fix() {
	p.T.Helper()
	if !p.made {
		p.MakeLater()
		p.MoreOf(p.Later(), 1)
		p.made = true
	}
}

// Finish lets what was deferred go, ends the load and checks, against what the last primary has.
func (p *Promoted) Finish() {
	p.T.Helper()
	p.Fix()
	p.stop()
	p.AwaitEmpty()
	p.CheckHistory(checker.History{MaxDuplicates: p.bound})
	slices.Sort(p.times)
	p.T.Logf("%d promotions; first event after %s at the least, %s in the middle, %s at the most", len(p.times), p.times[0], p.times[len(p.times)/2], p.times[len(p.times)-1])
}

// Early promotes a standby within the first seconds of a new leader. It may not be recorded yet.
// Every other time its slot may not be ready, or not be there. The relay goes on by itself, or
// stops and is helped.
func (p *Promoted) Early() {
	p.T.Helper()
	// so the walsender knows that it has to wait for the standby
	p.arrives("before an early promotion")
	if len(p.early)%2 == 1 { // only the leader is new
		p.Must(p.Pair.AwaitSynced(p.Context(), p.Slot))
	}
	for _, r := range p.relays {
		p.Must(r.Kill())
	}
	r := p.Launch()
	p.relays = []*runner.Relay{r}
	p.Leads(r)
	p.More(1 + p.random.IntN(900))
	p.Must(p.Pair.End(false))
	former, err := p.Pair.Promote(p.Context())
	p.Must(err)
	p.Must(former.Close())
	p.Move(p.Pair.Primary)
	p.Until("the relay to go on, or to stop", func() bool {
		return !r.Running() || strings.Contains(r.Log(), "went on after a promotion")
	})
	how := "it went on"
	if !r.Running() {
		how = p.help(r)
	}
	p.arrives("after an early promotion")
	p.early = append(p.early, how)
	p.Must(p.Pair.Join(p.Context()))
}

// help has a relay that stopped after a promotion go on, as it says.
func (p *Promoted) help(r *runner.Relay) (how string) {
	p.T.Helper()
	p.Exits(r, 3)
	var there bool
	p.Query([]any{&there}, `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)`, p.Slot)
	if there {
		how = "accepted"
		p.Accept(r.Log(), "--same-data")
	} else {
		how = "recovered"
		if res := p.Command("recover", "--same-data"); res.Code != 0 {
			p.T.Fatalf("recover ends with %d: %s%s", res.Code, res.Stdout, res.Stderr)
		}
	}
	p.relays = []*runner.Relay{p.Start()}
	return how
}

// arrives commits a row and waits until it has arrived.
func (p *Promoted) arrives(key string) {
	p.T.Helper()
	var id string
	p.Query([]any{&id}, InsertReturning("outbox", "order", fmt.Sprintf("%s %d", key, len(p.early))))
	p.Must(p.Consumer.WaitIDs(p.Context(), []string{id}))
}

// PromoteEarly makes so many early promotions of both versions, at moments that the seed picks.
// Nothing is lost, whether the relay has gone on by itself or not.
func PromoteEarly(t *testing.T, seed uint64, promotions int) {
	t.Helper()
	for i, version := range []int{17, 18} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			Parallel(t)
			p := BeginPromotions(t, Kinds[i%len(Kinds)], version, seed, i, 1-i)
			p.Fix()
			for range promotions {
				p.Early()
			}
			p.stop()
			p.AwaitEmpty()
			p.CheckHistory(checker.History{MaxDuplicates: -1, NewPositions: true})
			p.Stop()
			p.T.Logf("%q", p.early)
		})
	}
}

// Stop ends the relays, which have lived until now.
func (p *Promoted) Stop() {
	p.T.Helper()
	for _, r := range p.relays {
		if code := r.Stop(p.T); code != 0 {
			p.T.Errorf("a relay stops with %d after the promotions", code)
		}
	}
}

// PromoteMany makes so many promotions of both versions on each kind of broker, in ways that the
// seed picks. From the middle on what was deferred is sent.
func PromoteMany(t *testing.T, seed uint64, promotions int) {
	t.Helper()
	t.Parallel()
	ways := []Promotion{Planned, Killed, KilledLagging}
	for _, kind := range Kinds {
		for i, version := range []int{17, 18} {
			t.Run(fmt.Sprintf("%s/%d", kind.Name, version), func(t *testing.T) {
				Parallel(t)
				p := BeginPromotions(t, kind, version, seed, i, 1-i)
				for n := range promotions / 2 {
					if n == promotions/4 {
						p.Fix()
					}
					p.Round(ways[(n+p.random.IntN(2))%len(ways)])
				}
				p.Finish()
				p.Stop()
			})
		}
	}
}
