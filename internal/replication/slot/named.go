// Naming a finding for those who are not connected: a stream that has ended, a command.

package slot

import (
	"context"
	"errors"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Named is Found.Name for a caller that is not connected, or whose connections are bound to another
// server. The error stays as it is when the database does not answer: then it has FindingID for an
// ID, and `cdc-relay check` says it later.
func Named(ctx context.Context, c source.Config, err error, good pglogrepl.LSN) error {
	stop := unnamed(err)
	if stop == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), source.AnswerTimeout)
	defer cancel()
	f, pool, askErr := examineFresh(ctx, &c)
	if askErr != nil {
		return unknown(stop)
	}
	defer source.ClosePool(pool)
	var judged *event.Stop
	if askErr = f.judge(ctx, pool, &c); askErr != nil && !errors.As(askErr, &judged) {
		return unknown(stop)
	}
	return f.Name(err, good)
}

// examineFresh examines over connections of its own. The caller closes the pool.
func examineFresh(ctx context.Context, c *source.Config) (*Found, *pgxpool.Pool, error) {
	c.Primary = nil
	pool, err := source.ConnectPool(c)
	if err != nil {
		return nil, nil, err
	}
	stream, err := source.ConnectStream(ctx, c)
	if err != nil {
		source.ClosePool(pool)
		return nil, nil, err
	}
	defer source.CloseStream(stream)
	id, err := Identify(ctx, stream)
	var f *Found
	if err == nil {
		f, err = Examine(ctx, pool, c, id)
	}
	if err != nil {
		source.ClosePool(pool)
		return nil, nil, err
	}
	return f, pool, nil
}

// unknown says where the ID is.
func unknown(stop *event.Stop) error {
	if !stop.Acceptable() {
		return stop
	}
	named := *stop
	named.Fix += " (" + event.FindingID + ": `cdc-relay check` says it once PostgreSQL answers)"
	return &named
}

// NextStop is Judge for a caller that is not connected.
func NextStop(ctx context.Context, c source.Config) (*event.Stop, error) {
	f, pool, err := examineFresh(ctx, &c)
	if err != nil {
		return nil, err
	}
	defer source.ClosePool(pool)
	return f.Judge(ctx, pool, &c)
}
