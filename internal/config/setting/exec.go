// ${exec:COMMAND}: what a command prints, such as the token that a cloud's tool makes.

package setting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// The bounds of a command.
const (
	commandTimeout  = 10 * time.Second
	commandTail     = 4 << 10 // bytes that are kept of what it writes to standard error
	commandComplain = 200     // bytes of its last line that an error has at most
)

// command is the argument vector of a ${exec:...}. There is no shell. Words are separated by
// spaces. Single or double quotes keep what is between them together. Nothing else means anything.
type command []string

// onlyCommand matches a value that is one reference to a command.
var onlyCommand = lazy.Regexp(`^\$\{exec:([^}]*)\}$`)

// errNotWhole refuses a command in any other place.
var errNotWhole = errors.New("${exec:COMMAND} is only for user, password and client_secret, and stands alone there (COMMAND has no })")

// parseCommand reads the command of a value that is one reference to it; found is false
// for any other value. The program must exist.
func parseCommand(text string) (c command, found bool, err error) {
	m := onlyCommand().FindStringSubmatch(text)
	if m == nil {
		return nil, false, nil
	}
	if c, err = splitCommand(m[1]); err != nil {
		return nil, true, err
	}
	if _, err := exec.LookPath(c[0]); err != nil {
		return nil, true, fmt.Errorf("run %s: %w", c[0], withoutName(err))
	}
	return c, true, nil
}

func splitCommand(text string) (words command, err error) {
	var word strings.Builder
	inWord := false
	for len(text) > 0 {
		switch first := text[0]; first {
		case ' ':
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord, text = false, text[1:]
		case '\'', '"':
			inside, rest, closed := strings.Cut(text[1:], string(first))
			if !closed {
				return nil, errors.New("${exec:...} has a quote that is not closed")
			}
			word.WriteString(inside)
			inWord, text = true, rest
		default:
			word.WriteByte(first)
			inWord, text = true, text[1:]
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	if len(words) == 0 || words[0] == "" {
		return nil, errors.New("${exec:} names no program")
	}
	return words, nil
}

// String names the program, and not its arguments: they may hold a secret.
func (c command) String() string {
	if len(c) == 1 {
		return "${exec:" + c[0] + "}"
	}
	return "${exec:" + c[0] + " " + redacted + "}"
}

// run returns the one line that the command prints. The command and its children end within the
// limit, and with ctx. The error quotes no argument and nothing of what was printed; of standard
// error it has the last line, cut and without what looks like a secret.
func (c command) run(ctx context.Context, limit time.Duration) (string, error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	printed, complaint := &boundedOutput{most: maxSecretBytes, full: cancel}, &tailOutput{}
	cmd := exec.CommandContext(ctx, c[0], c[1:]...)
	cmd.Stdout, cmd.Stderr = printed, complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for a child that has left the group, and keeps the output open
	err := cmd.Run()
	if cmd.Process != nil {
		endGroup(cmd.Process.Pid)
	}
	line := strings.TrimSpace(printed.kept.String())
	switch lines := strings.Count(line, "\n") + 1; {
	case printed.over:
		err = fmt.Errorf("it prints more than %d KiB, the most a secret may have", maxSecretBytes>>10)
	case caller.Err() != nil:
		err = fmt.Errorf("it has not ended in time: %w", caller.Err())
	case ctx.Err() != nil:
		err = fmt.Errorf("it has not ended within %s", limit)
	case err != nil:
		err = withoutName(err)
	case line == "":
		err = errors.New("it prints nothing")
	case lines > 1:
		err = fmt.Errorf("it prints %d lines, want one", lines)
	default:
		return line, nil
	}
	if said := hideSecrets(complaint.lastLine(), slices.Concat(c[1:], strings.Fields(line))); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return "", fmt.Errorf("run %s: %w", c[0], err)
}

// endGroup ends what a command has left behind in its process group. Where the relay is the first
// process of a container these are its own children then, and would stay zombies.
func endGroup(leader int) {
	_ = syscall.Kill(-leader, syscall.SIGKILL) //nolint:errcheck // usually there is none left
	for range 100 {
		child, err := syscall.Wait4(-leader, nil, syscall.WNOHANG, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return // they are somebody else's children, or none
		}
		if child == 0 {
			<-time.After(time.Millisecond) // until it has ended
		}
	}
}

// withoutName is the reason of an error about a program, which names it a second time.
func withoutName(err error) error {
	var named *exec.Error
	var path *fs.PathError
	switch {
	case errors.As(err, &named):
		return named.Err
	case errors.As(err, &path):
		return path.Err
	}
	return err
}

// boundedOutput keeps the first bytes that are written, and calls full at the first one too many.
type boundedOutput struct {
	kept bytes.Buffer
	most int
	over bool
	full func()
}

func (o *boundedOutput) Write(p []byte) (int, error) {
	room := o.most - o.kept.Len()
	if len(p) > room && !o.over {
		o.over = true
		o.full()
	}
	o.kept.Write(p[:min(room, len(p))])
	return len(p), nil
}

// tailOutput keeps the last bytes that are written.
type tailOutput struct{ kept []byte }

func (o *tailOutput) Write(p []byte) (int, error) {
	o.kept = append(o.kept, p[max(0, len(p)-commandTail):]...)
	o.kept = o.kept[max(0, len(o.kept)-commandTail):]
	return len(p), nil
}

// lastLine returns the last line that is not empty, where most programs say what is wrong.
func (o *tailOutput) lastLine() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(o.kept), "?"))
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

var (
	// namedSecret matches the value in password=VALUE, "token": "VALUE", Bearer VALUE, and a word
	// with a digit after password or secret.
	namedSecret = lazy.Regexp(`(?i)((?:passw|pwd|secret|token|key|credential|authorization)[a-z_-]*["']?\s*[=:]\s*["']?(?:bearer\s+)?|bearer\s+)[^\s"',;]+|((?:password|secret|token)\s+["']?)[^\s"',;]*[0-9][^\s"',;]*`)
	// secretWord matches what may be a key or a token.
	secretWord = lazy.Regexp(`[A-Za-z0-9+/_=.~%-]{16,}`)
)

// hideSecrets returns a line without the known texts and without what looks like a secret, cut.
func hideSecrets(line string, known []string) string {
	for _, text := range known {
		if strings.HasPrefix(text, "-") { // --name=VALUE, or -n and VALUE in one
			_, value, found := strings.Cut(text, "=")
			if !found && !strings.HasPrefix(text, "--") {
				value = text[min(2, len(text)):]
			}
			text = value
		}
		if len(text) > 3 {
			line = strings.ReplaceAll(line, text, redacted)
		}
	}
	line = namedSecret().ReplaceAllString(line, "${1}${2}"+redacted)
	line = secretWord().ReplaceAllStringFunc(line, func(word string) string {
		if strings.ContainsAny(word, "0123456789") {
			return redacted
		}
		return word
	})
	for i := 0; i < len(line); { // control characters would break the one line
		r, size := utf8.DecodeRuneInString(line[i:])
		if i+size > commandComplain {
			return line[:i] + "…"
		}
		if r < ' ' || r == 0x7f {
			line = line[:i] + " " + line[i+size:]
		}
		i += size
	}
	return line
}
