package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// What Check asks about roles: settings that are tied to them, connections and rights.

// preset is a setting that a role, a database or a role in a database brings along.
type preset struct {
	Role, Database string // as SQL; "": of all
	Own            bool   // the relay's role has it
	Name, Value    string
}

// change is the SQL that alters it where it was set; what is SET ... or RESET ...
func (p preset) change(what string) string {
	switch {
	case p.Role == "" && p.Database == "":
		return "ALTER ROLE ALL " + what
	case p.Role == "":
		return fmt.Sprintf("ALTER DATABASE %s %s", p.Database, what)
	case p.Database == "":
		return fmt.Sprintf("ALTER ROLE %s %s", p.Role, what)
	}
	return fmt.Sprintf("ALTER ROLE %s IN DATABASE %s %s", p.Role, p.Database, what)
}

// String says whose it is.
func (p preset) String() string {
	switch {
	case p.Role == "" && p.Database == "":
		return p.Value + " for all roles"
	case p.Role == "":
		return fmt.Sprintf("%s for database %s", p.Value, p.Database)
	case p.Database == "":
		return fmt.Sprintf("%s for role %s", p.Value, p.Role)
	}
	return fmt.Sprintf("%s for role %s in database %s", p.Value, p.Role, p.Database)
}

// presets are those that reach sessions in this database of the relay's role, or of roles that may write to its tables.
func (k *checker) presets(ctx context.Context) ([]preset, error) {
	tables := make([]string, len(k.c.Tables))
	for i, t := range k.c.Tables {
		tables[i] = quoteTable(t)
	}
	rows, err := k.pool.Query(ctx, `SELECT coalesce(quote_ident(r.rolname), ''), coalesce(quote_ident(d.datname), ''), s.setrole = 0 OR r.rolname = session_user,
			split_part(c, '=', 1), substr(c, strpos(c, '=') + 1)
		FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) c
			LEFT JOIN pg_roles r ON r.oid = s.setrole LEFT JOIN pg_database d ON d.oid = s.setdatabase
		WHERE (s.setdatabase = 0 OR d.datname = current_database()) AND (s.setrole = 0 OR r.rolname = session_user OR r.rolcanlogin
			AND EXISTS (SELECT FROM unnest($1::text[]) t WHERE to_regclass(t) IS NOT NULL AND has_table_privilege(r.oid, to_regclass(t), 'INSERT')))
		ORDER BY 1, 2, 4`, tables)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[preset])
}

// role looks for settings of the relay's own role that the relay does not override at connect, and that hurt it.
func (k *checker) role(ctx context.Context) {
	const name = "role settings"
	all, err := k.presets(ctx)
	var current, limit string
	if err == nil {
		err = k.pool.QueryRow(ctx, `SELECT current_user::text, coalesce(nullif(current_setting('transaction_timeout', true), ''), '0')`).Scan(&current, &limit)
	}
	if k.unasked(name, err) {
		return
	}
	sent := settings("")
	var overridden []string
	for _, p := range all {
		_, ours := sent[p.Name]
		switch {
		case p.Own && p.Name == "role" && current != k.user:
			k.warn(name, fmt.Sprintf("role is %s: what the relay does beside the stream it does with the rights of %s", p, current), p.change("RESET role"))
			return
		case p.Own && ours && !slices.Contains(overridden, p.Name):
			overridden = append(overridden, p.Name)
		}
	}
	if limit != "0" {
		k.warn(name, "transaction_timeout is "+limit+" for this role: it ends the creation of a slot that takes longer, for the rows that are in the table or for open transactions",
			fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET transaction_timeout = 0", k.roleName(), quoteName(k.database)))
		return
	}
	detail := "none that matters"
	if len(overridden) > 0 {
		detail += ": the relay sets " + strings.Join(overridden, ", ") + " for its own sessions when it connects"
	}
	k.add(name, detail, nil)
}

// commits looks for writers whose commits the server does not flush at once: it sends only WAL that is on disk. What the
// server has for all was asked on the replication connection: the pool's sessions have a synchronous_commit of their own.
func (k *checker) commits(ctx context.Context) {
	const name = "synchronous_commit"
	all, err := k.presets(ctx)
	var delay string
	if err == nil {
		err = k.pool.QueryRow(ctx, `SELECT current_setting('wal_writer_delay')`).Scan(&delay)
	}
	if k.unasked(name, errors.Join(err, k.commit.err)) {
		return
	}
	late := fmt.Sprintf(": what they commit reaches the relay later by one or two wal_writer_delay (%s)", delay)
	var found, mends []string
	for _, p := range all {
		if p.Name == name && isOff(p.Value) && (p.Role == "" || !p.Own) {
			found, mends = append(found, p.String()), append(mends, p.change("SET synchronous_commit = on"))
		}
	}
	if isOff(k.commit.value) {
		found, mends = append(found, "off for all"), append(mends, "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf()")
	}
	if len(found) > 0 {
		k.warn(name, strings.Join(found, ", ")+late, strings.Join(mends, "; "))
		return
	}
	k.add(name, "on for those who write to the outbox, as far as the settings of server, roles and databases tell", nil)
}

func isOff(value string) bool {
	return slices.Contains([]string{"off", "false", "no", "0"}, strings.ToLower(value))
}

// connections compares the limits of role and database with what the relay opens.
func (k *checker) connections(ctx context.Context) {
	const name = "connections"
	const need = poolConnections + 1
	var role, database, all int
	err := k.pool.QueryRow(ctx, `SELECT (SELECT rolconnlimit FROM pg_roles WHERE rolname = session_user),
		(SELECT datconnlimit FROM pg_database WHERE datname = current_database()), current_setting('max_connections')::int`).Scan(&role, &database, &all)
	switch {
	case k.unasked(name, err):
	case role >= 0 && role < need:
		k.warn(name, fmt.Sprintf("this role may have %d, the relay uses up to %d", role, need), fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT -1", k.roleName()))
	case database >= 0 && database < need:
		k.warn(name, fmt.Sprintf("this database may have %d, the relay uses up to %d", database, need), fmt.Sprintf("ALTER DATABASE %s CONNECTION LIMIT -1", quoteName(k.database)))
	default:
		k.add(name, fmt.Sprintf("the relay uses up to %d; max_connections is %d", need, all), nil)
	}
}

// readable looks whether the tables can be read, without which no slot is created; later that is for `events show` alone.
func (k *checker) readable(ctx context.Context, created bool) bool {
	const name = "rights"
	err := checkReadable(ctx, k.pool, k.c)
	var stop *outbox.Stop
	if created && errors.As(err, &stop) {
		if strings.HasPrefix(stop.What, "row level") {
			err = nil // it was for the moment of creation
		} else {
			k.warn(name, fmt.Sprintf("role %q may not read the outbox: `events show` does not find what was delivered", k.user), stop.Mend)
			return false
		}
	}
	return k.add(name, "this role may do what the relay does", err)
}
