// The check before the relay runs: does everything that it will need of PostgreSQL, the broker and
// the configuration work? Nothing is published or changed.

package wiring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/ops/admin"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retention"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// CheckTimeout is how long `cdc-relay check` lets a whole check take.
const CheckTimeout = 30 * time.Second

// Check checks PostgreSQL, the broker and the configuration. It publishes nothing. PostgreSQL and
// the broker are checked at the same time, because one that does not answer uses up the time of the
// whole check.
func Check(ctx context.Context, c *config.Config, rc source.Config, log *zap.Logger) ([]check.Finding, error) {
	rc.Log = zap.NewNop()
	var broker []sink.Finding
	var brokerErr error
	var asked sync.WaitGroup
	asked.Go(func() { broker, brokerErr = checkBroker(ctx, c, log) })
	findings, err := check.Run(ctx, rc)
	kept := checkRetention(ctx, c, rc)
	asked.Wait()
	if err := cmp.Or(err, brokerErr); err != nil {
		return nil, err
	}
	beside := slices.ContainsFunc(broker, func(f sink.Finding) bool { return f.Running != nil }) && check.RelayRuns(ctx, rc)
	return slices.Concat(findings, kept, checkOrdering(c), brokerFindings(broker, beside), checkAdmin(&c.Admin, time.Now()), checkAdminListen(&c.Admin)), nil
}

// checkOrdering warns of a template that sends the events of one key to several exchanges or
// topics, because order is kept only within one of them. It returns no finding for a sink without a
// template. With a profile it describes the order that the profile keeps.
func checkOrdering(c *config.Config) []check.Finding {
	driver := c.Sink.Driver
	if len(driver.Route) == 0 {
		return nil
	}
	scope, t := driver.Route[0].Title(), c.Sink.Settings.Templates()[0]
	key := driver.Section() + t.Key
	f := check.Finding{Name: "ordering", Level: check.LevelOK}
	if c.Sink.Compat.Profile != "" && c.Delivery.Ordering != config.OrderingNone {
		f.Detail = profileOrdering(scope, c.Delivery.Ordering)
		return []check.Finding{f}
	}
	whole, parts := "of a key", placeholdersWithinKey()
	if c.Delivery.Ordering == config.OrderingCommit {
		whole, parts = "of all keys", placeholders()
	}
	found := parts.FindAllString(t.String(), -1)
	switch {
	case c.Delivery.Ordering == config.OrderingNone:
		f.Detail = "none is kept (delivery.ordering: none)"
	case len(found) == 0:
		f.Detail = fmt.Sprintf("the events %s go to one %s, in the order of their commits", whole, scope)
	default:
		f.Level = check.LevelWarn
		f.Detail = fmt.Sprintf("%s %q sends events %s to several %ss by %s: they keep their order within each, and none among them", key, t.Template, whole, scope, strings.Join(found, " and "))
		f.Fix = fmt.Sprintf("%s: %q; or, if nobody counts on the order, delivery.ordering: none", key, removePlaceholders(t.String(), parts))
	}
	return []check.Finding{f}
}

// profileOrdering describes the order that a profile keeps. It proposes no fix: Debezium's options
// choose the topics. Even with one constant topic in the options there can be others, because a
// value that the expression does not match becomes a topic itself.
func profileOrdering(scope, ordering string) string {
	if scope == "topic" {
		scope = "partition"
	}
	if ordering == config.OrderingCommit {
		return fmt.Sprintf("as behind Debezium: events keep the order of their commits within each %s, and none among %ss", scope, scope)
	}
	return fmt.Sprintf("the events of a key keep their order within each %s, and none among %ss; behind Debezium all events do: delivery.ordering: commit", scope, scope)
}

// placeholdersWithinKey match the placeholders that may differ between events of one ordering key,
// which is aggregate and key. placeholders match all placeholders.
var (
	placeholdersWithinKey = lazy.Regexp(`\{(?:type|id|column:[^{}]*)\}`)
	placeholders          = lazy.Regexp(`\{[^{}]*\}`)
)

// removePlaceholders returns a template without the given parts, and without the dots and dashes
// that they leave behind. The fix of a finding proposes it.
func removePlaceholders(template string, parts *regexp.Regexp) string {
	left := parts.ReplaceAllString(template, "")
	left = regexp.MustCompile(`([._/-])[._/-]+`).ReplaceAllString(left, "$1")
	if left = strings.Trim(left, "._/-"); left == "" {
		return "outbox.events"
	}
	return left
}

// CheckRetained checks at the start whether the tables have what retention needs. It returns a Stop
// with exit code event.ExitUsage if a table lacks a column, default or trigger. If the database
// does not answer, CheckRetained only logs that, because delivery does not depend on retention.
func CheckRetained(ctx context.Context, c *config.Config, pool *pgxpool.Pool, log *zap.Logger) error {
	if !c.Retention.IsSet() {
		return nil
	}
	tables := Retained(c)
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	err := retention.CheckTables(ctx, pool, tables)
	var stop *event.Stop
	if errors.As(err, &stop) {
		return stop
	}
	if err != nil {
		log.Warn("cannot tell whether the tables have what retention needs", zap.Error(err))
	}
	return nil
}

// checkRetention checks whether the tables have what retention needs. Without retention it checks
// only the column of the rows' transaction. It returns no finding while the relay's schema is
// missing, because the check of PostgreSQL reports that.
func checkRetention(ctx context.Context, c *config.Config, rc source.Config) []check.Finding {
	const name = "retention"
	tables := Retained(c)
	if len(tables) == 0 {
		return nil
	}
	pool, err := source.ConnectPool(&rc)
	if err != nil {
		return nil
	}
	defer source.ClosePool(pool)
	var there bool
	if err := pool.QueryRow(ctx, `SELECT to_regclass('cdc_relay.sent') IS NOT NULL`).Scan(&there); err != nil || !there {
		return nil
	}
	var problems []retention.Problem
	if c.Retention.IsSet() {
		problems, err = retention.Examine(ctx, pool, c.Source.Publication, tables)
	} else {
		problems, err = retention.ExamineColumns(ctx, pool, c.Source.Publication, tables)
	}
	switch {
	// It may not read the relay's own tables; Examine itself reports a missing right on the outbox.
	case source.SQLState(err) == "42501":
		return []check.Finding{{
			Name: name, Level: check.LevelFail, Detail: "cannot be checked: " + source.OneLine(err).Error(),
			Fix: fmt.Sprintf("cdc-relay init --url <of a role that may grant it> --role %s", pool.Config().ConnConfig.User),
		}}
	case err != nil:
		return []check.Finding{{Name: name, Level: check.LevelWarn, Detail: "cannot be checked: " + source.OneLine(err).Error()}}
	}
	var list []check.Finding
	ok := true
	for _, p := range problems {
		f := check.Finding{Name: name, Level: check.LevelFail, Detail: p.What, Fix: p.Fix}
		if p.Warn {
			f.Level = check.LevelWarn
		} else {
			ok = false
		}
		list = append(list, f)
	}
	if ok && c.Retention.IsSet() {
		after := "at once"
		if c.Retention.Keep > 0 {
			after = setting.ShowDuration(c.Retention.Keep) + " after that"
		}
		list = append([]check.Finding{{Name: name, Level: check.LevelOK, Detail: "rows that were delivered are deleted, " + after}}, list...)
	}
	return list
}

// The check of the admin side looks at tokens, socket and certificate. Each finding is a warning at
// most, because delivery depends on none of the three.

// The names of these findings.
const (
	nameTokens      = "admin tokens"
	nameSocket      = "admin socket"
	nameCertificate = "admin certificate"
)

// checkAdmin checks whether the user who runs the check can use the tokens, the socket and the
// certificate of the API.
func checkAdmin(c *config.Admin, now time.Time) []check.Finding {
	findings := checkTokens(c)
	if c.Socket != "" {
		detail, fix := socketFault(c.Socket)
		findings = append(findings, warnOrOK(nameSocket, c.Socket, detail, fix))
	}
	if c.TLS.Cert != "" {
		detail := ""
		if err := admin.TLSFiles(c.TLS).Fault(now); err != nil {
			detail = err.Error() // the error says how to fix it
		}
		findings = append(findings, warnOrOK(nameCertificate, c.TLS.Cert, detail, ""))
	}
	return findings
}

// warnOrOK returns a warning with the fault, or an OK with the text good when the fault is "".
func warnOrOK(name, good, fault, fix string) check.Finding {
	if fault != "" {
		return check.Finding{Name: name, Level: check.LevelWarn, Detail: fault, Fix: fix}
	}
	return check.Finding{Name: name, Level: check.LevelOK, Detail: good}
}

// checkTokens names each token that cannot be used, and why.
func checkTokens(c *config.Admin) (findings []check.Finding) {
	for i := range c.Tokens {
		if _, err := c.Tokens[i].Read(); err != nil {
			findings = append(findings, warnOrOK(nameTokens, "", err.Error(), ""))
		}
	}
	good := fmt.Sprintf("%d can be used", len(c.Tokens))
	switch {
	case len(findings) > 0:
		return findings
	case len(c.Tokens) == 0 && c.Socket == "":
		good = "none, and no admin.socket: the API answers nobody"
	case len(c.Tokens) == 0:
		good = "none: the API answers on admin.socket alone"
	}
	return append(findings, warnOrOK(nameTokens, good, "", ""))
}

// socketFault returns why the relay cannot listen on a socket at path. fault is "" when it can, or
// when a socket is there already.
func socketFault(path string) (fault, fix string) {
	dir := filepath.Dir(path)
	switch info, err := os.Lstat(path); {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return path + " exists and is not a socket", "move it away, or set admin.socket to another path"
	case err == nil:
		return "", ""
	case !errors.Is(err, fs.ErrNotExist):
		return err.Error(), "set admin.socket to a path in a directory of the relay's user"
	}
	if _, err := os.Stat(dir); err != nil {
		return "the directory of " + path + " is missing", "install -d -m 755 -o USER " + dir + ", USER being the relay's"
	}
	return "", ""
}

// checkAdminListen warns when tokens cross the network unencrypted: whoever reads a token there may
// use it. It returns no finding when no token is configured or admin.listen is empty.
func checkAdminListen(a *config.Admin) []check.Finding {
	const name = "admin listen"
	if len(a.Tokens) == 0 || a.Listen == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(a.Listen)
	switch {
	case a.TLS.Cert != "":
		return []check.Finding{{Name: name, Level: check.LevelOK, Detail: "sent over TLS"}}
	case err == nil && sink.Loopback(host):
		return []check.Finding{{Name: name, Level: check.LevelOK, Detail: "sent on this machine only"}}
	}
	return []check.Finding{{
		Name: name, Level: check.LevelWarn, Detail: "admin.listen " + a.Listen + " has no TLS: whoever is in between reads the tokens",
		Fix: "admin: {tls: {cert: /etc/cdc-relay/admin.pem, key: /etc/cdc-relay/admin.key}}; or admin.listen: 127.0.0.1:" + port +
			", with admin.metrics_listen on another port for metrics and probes",
	}}
}
