// The token files that init creates.

package cli

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// tokenBytes makes a token that nobody guesses; the file has it in hexadecimal.
const tokenBytes = 32

// createTokenFiles creates the files of admin.tokens that do not exist. A file that exists is left
// alone whatever it has: another machine, or a secret store, may have put it there.
func createTokenFiles(c *config.Config, log *zap.Logger) error {
	var failed error
	for _, token := range c.Admin.Tokens {
		path, ok := token.Value.File()
		if !ok {
			continue
		}
		created, err := createTokenFile(path)
		if created {
			log.Info("created the file of a token", zap.String("token", token.Name), zap.String("path", path))
		}
		if err != nil {
			failed = errors.Join(failed, tokenFileError(token.Name, path, err))
		}
	}
	return failed
}

// createTokenFile makes a file that is whole once it is there: half a token is a weak one, and the
// next init would leave it.
func createTokenFile(path string) (created bool, err error) {
	if _, err := os.Lstat(path); err == nil { // perhaps where nobody can write
		return false, nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".token-*") // mode 0600
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	secret := make([]byte, tokenBytes)
	_, _ = rand.Read(secret) // never fails
	_, err = f.WriteString(hex.EncodeToString(secret) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return false, err
	}
	err = os.Link(f.Name(), path) // which replaces nothing
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

func tokenFileError(name, path string, err error) error {
	dir := filepath.Dir(path)
	stop := &event.Stop{
		Code: event.ExitFailure, Reason: "token_file", What: fmt.Sprintf("create the file of admin token %q", name), Err: err,
		Fix: "run init as a user who may write to " + dir + ", or create the file there (openssl rand -hex 32)",
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		stop.Fix = fmt.Sprintf("create its directory for the relay's user (install -d -m 700 -o USER %s) and run init again", dir)
	}
	return stop
}
