package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/term"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/retry"
)

const (
	askRelay    = 3 * time.Second
	askDatabase = 10 * time.Second
)

func newStatus(g *global) *cobra.Command {
	var admin string
	var asJSON, watching bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "What the relay is doing",
		Long: `Asks the running relay. When it does not answer, shows what the database knows and says so: exit 0 when somebody holds the
slot, else 1.

With --watch it goes on asking until it is interrupted, and exits 0 then. On a terminal it redraws, with lines of how far behind the
slot has been; elsewhere it prints a line each time, with --json an object. A relay that goes away is shown as that, and again when it
is back.`,
		Example: `  cdc-relay status
  cdc-relay status --watch
  cdc-relay status --watch --every 10s >> status.log
  cdc-relay status --admin 10.0.0.7:9464 --json | jq .slot.lag_bytes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.load()
			if err != nil {
				return err
			}
			if admin == "" {
				admin = c.Admin.Listen
			}
			switch {
			case watching && every < shortestEvery:
				return usage("--every", fmt.Errorf("is %s, want at least %s", every, shortestEvery))
			case watching:
				return runWatch(cmd.Context(), cmd.OutOrStdout(), c, g, admin, every, asJSON)
			case cmd.Flags().Changed("every"):
				return usage("--every", errors.New("has no effect without --watch"))
			}
			status, err := fetchStatus(cmd.Context(), c, admin)
			if err == nil {
				return showStatus(cmd.OutOrStdout(), status, asJSON)
			}
			var answered *relayAnswer
			if errors.As(err, &answered) {
				return err
			}
			return showDatabase(cmd.Context(), cmd.OutOrStdout(), c, g, asJSON, err)
		},
	}
	cmd.Flags().StringVar(&admin, "admin", "", "address of the relay (default admin.listen)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&watching, "watch", "w", false, "go on asking until interrupted")
	cmd.Flags().DurationVar(&every, "every", time.Second, "with --watch: the interval")
	return cmd
}

const shortestEvery = 100 * time.Millisecond

// relayAnswer is an answer of the relay that is not a status: it is there, so the database is not asked instead.
type relayAnswer struct{ text string }

func (e *relayAnswer) Error() string { return e.text }

func fetchStatus(ctx context.Context, c *config.Config, admin string) (*ops.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, askRelay)
	defer cancel()
	base := admin
	if !strings.Contains(base, "://") {
		base = "http://" + reachable(base)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/status", nil)
	if err != nil {
		return nil, &relayAnswer{fmt.Sprintf("--admin %s: %v", admin, err)}
	}
	if err := authorize(req, c); err != nil {
		return nil, &relayAnswer{err.Error()}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &relayAnswer{fmt.Sprintf("the relay at %s answers %s: correct --admin, admin.read_token or admin.token", admin, resp.Status)}
	}
	var status ops.Status
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&status); err != nil {
		return nil, &relayAnswer{fmt.Sprintf("the program at %s is not a cdc-relay: %v", admin, err)}
	}
	return &status, nil
}

// reachable turns an address to listen on into one to connect to.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func authorize(req *http.Request, c *config.Config) error {
	for _, secret := range []config.Secret{c.Admin.ReadToken, c.Admin.Token} {
		if secret.IsSet() {
			token, err := secret.Read()
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer "+token)
			return nil
		}
	}
	return nil
}

func showStatus(w io.Writer, s *ops.Status, asJSON bool) error {
	if asJSON {
		return printJSON(w, s)
	}
	return writeStatus(w, s, colourful(w))
}

func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func colourful(w io.Writer) bool { return onTerminal(w) && os.Getenv("NO_COLOR") == "" }

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// databaseView is what is printed when no relay answers.
type databaseView struct {
	State string    `json:"state"` // in words: stopped, or not answering when somebody holds the slot
	Why   string    `json:"why"`
	Now   time.Time `json:"now"`

	Relay       string `json:"relay"` // why it did not answer
	SlotExists  bool   `json:"slot_exists"`
	SlotActive  bool   `json:"slot_active"`
	Holder      string `json:"holder,omitempty"`
	Confirmed   string `json:"confirmed_flush_lsn,omitempty"`
	LagBytes    uint64 `json:"lag_bytes"`
	WALStatus   string `json:"wal_status,omitempty"`
	LastLeader  string `json:"last_leader,omitempty"`
	RecordState string `json:"record_state,omitempty"`

	Parked      *parkedRows  `json:"parked,omitempty"` // absent: they could not be counted
	DeadLetters *deadLetters `json:"dead_letters,omitempty"`
	NotCounted  string       `json:"not_counted,omitempty"` // why
}

type parkedRows struct {
	Events int        `json:"events"`
	OrMore bool       `json:"or_more"`
	Oldest *time.Time `json:"oldest"` // commit time; null: there is none
}

type deadLetters struct {
	Open   int        `json:"open"`
	OrMore bool       `json:"or_more"`
	Oldest *time.Time `json:"oldest"` // when it died; null: there is none
}

func showDatabase(ctx context.Context, w io.Writer, c *config.Config, g *global, asJSON bool, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, askDatabase)
	defer cancel()
	v, err := askTheDatabase(ctx, g)
	var stop *outbox.Stop
	if errors.As(err, &stop) && stop.Code == outbox.ExitUsage {
		return err
	}
	if err != nil {
		return fmt.Errorf("no relay answers (%w), and the database does not either: %w", cause, err)
	}
	v.Relay = "does not answer: " + cause.Error()
	if asJSON {
		err = printJSON(w, v)
	} else if _, err = fmt.Fprintf(w, "%-11s%s: %s\n", "state", v.State, clean(v.Why)); err == nil {
		err = v.write(w, c.Source.Slot)
	}
	if err == nil && !v.SlotActive {
		err = logged{&outbox.Stop{Code: outbox.ExitFailure, Reason: "not_running", What: "no relay runs"}} // said above
	}
	return err
}

func askTheDatabase(ctx context.Context, g *global) (*databaseView, error) {
	_, rc, _, err := sourceOnly(g)
	if err != nil {
		return nil, err
	}
	rc.Log = zap.NewNop()
	v, err := lookAtDatabase(ctx, rc)
	if err != nil {
		return nil, err
	}
	v.Now = time.Now().UTC()
	switch {
	case v.SlotActive:
		v.State, v.Why = stateSilent, "no relay answers at the address that was asked, and "+v.Holder+" holds the slot"
	case v.SlotExists:
		v.State, v.Why = ops.StateStopped, "no relay answers, and nobody holds the slot"
	default:
		v.State, v.Why = ops.StateStopped, "no relay answers, and there is no slot"
	}
	return &v, nil
}

func lookAtDatabase(ctx context.Context, rc replication.Config) (v databaseView, err error) {
	pool, err := replication.Connect(ctx, rc)
	if err != nil {
		return v, err
	}
	defer pool.Close()
	known, err := replication.Look(ctx, pool, rc.Slot)
	if err != nil {
		return v, err
	}
	v.LastLeader, v.RecordState = known.Leader, known.State
	if s := known.Slot; s != nil {
		v.SlotExists, v.SlotActive, v.Holder = true, s.Active, s.Holder
		v.Confirmed, v.WALStatus = s.ConfirmedFlush.String(), s.WALStatus
		v.LagBytes = uint64(s.Current) - uint64(s.ConfirmedFlush)
	}
	if known.State == "" {
		return v, nil
	}
	v.countRows(ctx, pool, rc.Slot, known.SystemID)
	return v, nil
}

// countRows counts all rows, or a few when that takes too long.
func (v *databaseView) countRows(ctx context.Context, pool *pgxpool.Pool, slot, systemID string) {
	for limit := retry.TallyLimit; limit >= fewRows; limit /= retry.TallyLimit / fewRows {
		ctx, cancel := context.WithTimeout(ctx, askDatabase/3)
		t, err := retry.ReadTally(ctx, pool, slot, systemID, limit)
		cancel()
		if err == nil {
			v.Parked = &parkedRows{t.Parked, t.Parked == limit, someTime(t.OldestParked)}
			v.DeadLetters = &deadLetters{t.Dead, t.Dead == limit, someTime(t.OldestDead)}
			v.NotCounted = ""
			return
		}
		v.NotCounted = err.Error()
	}
}

const fewRows = 10_000

func orMore(is bool) string {
	if is {
		return "at least "
	}
	return ""
}

func someTime(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func (v *databaseView) write(w io.Writer, slot string) error {
	_, err := fmt.Fprintf(w, "The relay %s.\nWhat the database knows of slot %q:\n", v.Relay, slot)
	if err != nil {
		return err
	}
	switch {
	case !v.SlotExists:
		_, err = fmt.Fprintln(w, "  it does not exist")
	case v.SlotActive:
		_, err = fmt.Fprintf(w, "  held by %s, confirmed %s, %d bytes behind\n", v.Holder, v.Confirmed, v.LagBytes)
	default:
		_, err = fmt.Fprintf(w, "  nobody holds it, confirmed %s, %d bytes behind, wal_status %s\n", v.Confirmed, v.LagBytes, v.WALStatus)
	}
	if err == nil && v.LastLeader != "" {
		_, err = fmt.Fprintf(w, "  last leader: %s\n", v.LastLeader)
	}
	if err == nil {
		_, err = io.WriteString(w, v.waiting(time.Now()))
	}
	return err
}

// waiting says what the tables hold, if that is anything.
func (v *databaseView) waiting(now time.Time) (text string) {
	if p := v.Parked; p != nil && p.Events > 0 {
		text += fmt.Sprintf("  %s%s parked%s\n", orMore(p.OrMore), count(p.Events, "event"), since(now, ", oldest from ", p.Oldest, " ago"))
	}
	if d := v.DeadLetters; d != nil && d.Open > 0 {
		text += fmt.Sprintf("  %s%s open%s\n", orMore(d.OrMore), count(d.Open, "dead letter"), since(now, ", the first for ", d.Oldest, ""))
	}
	if v.NotCounted != "" {
		text += fmt.Sprintf("  what is parked or dead is not known: %s\n", clean(v.NotCounted))
	}
	return text
}
