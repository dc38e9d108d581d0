package wiring

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// A question about the tables that is not answered keeps no relay from delivering.
func TestTablesThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(await.Context(t), "postgres://127.0.0.1:1/shop?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	core, logs := observer.New(zap.WarnLevel)
	c := &config.Config{Retention: config.Retention{Mode: config.RetentionDelete}}
	c.Source.Tables = []config.Table{{Schema: "public", Name: "outbox", Outbox: config.Default().Outbox}}
	if err := CheckRetained(await.Context(t), c, pool, zap.New(core)); err != nil || logs.Len() != 1 {
		t.Errorf("it ends with %v, and logs %v", err, logs.All())
	}
}
