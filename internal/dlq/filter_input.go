// FilterInput is a filter as operators write it.

package dlq

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// FilterInput is a filter in the flags of a command, in a query or a body of the API. What is nil
// was not given.
type FilterInput struct {
	ID          *string    `json:"id"`
	Key         *string    `json:"key"`
	KeyOf       *int64     `json:"key_of"` // number of a row with that key
	Aggregate   *string    `json:"aggregate"`
	Type        *string    `json:"type"`
	Destination *string    `json:"destination"`
	Class       *string    `json:"class"`
	Error       *string    `json:"error"`
	State       *string    `json:"state"`
	From        *time.Time `json:"from"`
	To          *time.Time `json:"to"`
}

// Set sets a part by its name. known is false when there is no such part.
func (in *FilterInput) Set(name, value string) (known bool, err error) {
	switch name {
	case "id":
		in.ID = &value
	case "key":
		in.Key = &value
	case "aggregate":
		in.Aggregate = &value
	case "type":
		in.Type = &value
	case "destination":
		in.Destination = &value
	case "class":
		in.Class = &value
	case "error":
		in.Error = &value
	case "state":
		in.State = &value
	case "key_of":
		in.KeyOf = new(int64)
		if *in.KeyOf, err = strconv.ParseInt(value, 10, 64); err != nil {
			err = &BadInput{name, fmt.Sprintf("is %q, want the number of a row", value)}
		}
	case "from", "to":
		at, failed := time.Parse(time.RFC3339, value)
		if failed != nil {
			err = &BadInput{name, fmt.Sprintf("is %q, want a time such as 2026-11-20T15:04:05Z", value)}
		}
		if name == "from" {
			in.From = &at
		} else {
			in.To = &at
		}
	default:
		return false, nil
	}
	return true, err
}

// Filter is the filter. a finds the row of KeyOf; without a, KeyOf is only checked.
func (in *FilterInput) Filter(ctx context.Context, a *Admin) (Filter, error) {
	f := Filter{ID: octets(in.ID), Key: octets(in.Key), Aggregate: octets(in.Aggregate), Type: octets(in.Type), Destination: octets(in.Destination)}
	for _, text := range []struct {
		name  string
		given *string
		into  *string
	}{{"destination", in.Destination, nil}, {"class", in.Class, &f.Class}, {"error", in.Error, &f.Error}, {"state", in.State, &f.State}} {
		switch {
		case text.given == nil:
		case *text.given == "": // a variable of a script that is not set must not choose everything
			return f, &BadInput{text.name, "is empty; leave it out to match any"}
		case text.into != nil:
			*text.into = *text.given
		}
	}
	if in.From != nil {
		f.From = *in.From
	}
	if in.To != nil {
		f.To = *in.To
	}
	switch {
	case in.KeyOf == nil:
		return f, nil
	case in.Key != nil || in.Aggregate != nil:
		return f, &BadInput{"key_of", "excludes key and aggregate"}
	case a == nil:
		return f, nil
	}
	return f, a.SameKey(ctx, *in.KeyOf, &f)
}
