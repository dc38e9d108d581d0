// The full retry table next to an empty one, and how rows are multiplied in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// retryTables are a full retry table and an empty one. One of them has the name.
type retryTables struct {
	*stand
	full bool // the full one has it
}

// hideFull gives the retry table's name to an empty one.
func (s *stand) hideFull(ctx context.Context) (*retryTables, error) {
	err := execSQL(ctx, s.db, "CREATE TABLE cdc_relay.retry_empty (LIKE cdc_relay.retry INCLUDING ALL)", "ANALYZE cdc_relay.retry")
	if err != nil {
		return nil, err
	}
	t := &retryTables{stand: s, full: true}
	return t, t.use(ctx, false)
}

// use gives the name to the full one, or to the empty one. No relay may run.
func (t *retryTables) use(ctx context.Context, full bool) error {
	if t.full == full {
		return nil
	}
	from, to := "retry_full", "retry_empty"
	if full {
		from, to = to, from
	}
	err := execSQL(ctx, t.db, "ALTER TABLE cdc_relay.retry RENAME TO "+from+"; ALTER TABLE cdc_relay."+to+" RENAME TO retry")
	if err == nil {
		t.full = full
	}
	return err
}

// end keeps the full one.
func (t *retryTables) end(ctx context.Context) error {
	return errors.Join(t.use(ctx, true), execSQL(ctx, t.db, "DROP TABLE cdc_relay.retry_empty"))
}

// multiplyRetryRows copies each deferred row until there are n. The copies are as the relay wrote
// the row, but for their numbers and their positions: later ones of the same transaction.
func (s *stand) multiplyRetryRows(ctx context.Context, n int) error {
	have, err := s.retryRows(ctx)
	if err != nil {
		return err
	}
	var others string
	err = s.ask(ctx, &others, `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = 'cdc_relay.retry'::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('idx', 'n')`)
	if err != nil {
		return err
	}
	// The relay's numbers are above zero, and it reads none above those it has written.
	sql := `INSERT INTO cdc_relay.retry (idx, n, COLUMNS) SELECT idx + times * (SELECT max(idx) + 1 FROM cdc_relay.retry), -row_number() OVER (), COLUMNS
		FROM cdc_relay.retry, generate_series(1, TIMES) times`
	sql = strings.NewReplacer("COLUMNS", others, "TIMES", fmt.Sprint(n/have-1)).Replace(sql)
	return execSQL(ctx, s.db, sql, "ANALYZE cdc_relay.retry")
}
