// Types of exchanges of our own.

package rabbitserver

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed keeping_exchange.erl
var keepingExchange []byte

// AddKeepers adds the types x-delayed-message and x-message-deduplication, which return messages
// that they take. The plugins themselves come with no package: keeping_exchange.erl stands for
// them. The broker compiles it, as it has what it needs for that.
func (r *Rabbit) AddKeepers(ctx context.Context) error {
	const module = "keeping_exchange"
	path := filepath.Join(r.dir, module+".erl")
	if err := os.WriteFile(path, keepingExchange, 0o600); err != nil {
		return err
	}
	out, err := r.Eval(ctx, fmt.Sprintf(`Version4 = [{d, message_containers} || {module, _} <- [code:ensure_loaded(mc)]],
		{ok, %[1]s, Code} = compile:file(%[2]q, [binary, return_errors | Version4]),
		{module, %[1]s} = code:load_binary(%[1]s, %[2]q, Code), %[1]s:add().`, module, path))
	if err == nil && strings.ReplaceAll(out, " ", "") != "[ok,ok]" {
		err = fmt.Errorf("add types of exchanges: broker answers %s", out)
	}
	return err
}
