// How a paused destination is named to be tried now.

package ops

import (
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// destinationTitle is how sinks name a destination.
var destinationTitle = lazy.Regexp(`^(?:exchange|topic) ("(?:[^"\\]|\\.)*")(?:, routing key ("(?:[^"\\]|\\.)*"))?$`)

// RetryName is the destination in the form that `deferred retry` takes; "": it has none, or has a
// placeholder and stands for many.
func (p *Paused) RetryName() string {
	found := destinationTitle().FindStringSubmatch(p.Destination)
	if found == nil {
		return ""
	}
	name, err := strconv.Unquote(found[1])
	if err != nil || name == "" {
		return ""
	}
	if found[2] != "" {
		key, err := strconv.Unquote(found[2])
		if err != nil {
			return ""
		}
		name += "/" + key
	}
	if strings.Contains(name, "{") {
		return ""
	}
	return name
}
