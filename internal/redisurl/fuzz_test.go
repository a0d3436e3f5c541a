package redisurl

import (
	"net/url"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Any text is read or refused without a panic. What may be shown has no password, and a client can be made of what
// was read.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"redis://u:s3cret@127.0.0.1:6379/0?pool_size=7&read_timeout=3s", "unix://u:s3cret@/run/redis.sock?db=2", "rediss://u:s3cret@a:1?addr=b:2&addr=c:3",
		"redis://a:26379/1?master_name=m&addr=b:26379", "redis://u:s3cret@[::1]:7000/3", "redis://u:53?s3cret;x@b:1", "redis://a?min_idle_conns=2147483648",
		"redis://a?max_retries=-9223372036854775808&dial_timeout=9223372036854775807", "redis://a?pool_fifo=1&protocol=0&client_name=x",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		options, shown, err := Parse(text)
		if err != nil {
			if u, parsed := url.Parse(text); parsed == nil && u.User != nil {
				if password, _ := u.User.Password(); len(password) > 5 && strings.Contains(err.Error(), password) {
					t.Errorf("%q: %v", text, err)
				}
			}
			return
		}
		if scheme, _, _ := strings.Cut(text, "://"); scheme != "unix" && strings.Contains(shown, "@") {
			t.Errorf("%q is shown as %q", text, shown)
		}
		if options.MinIdleConns > 0 { // connections would be made
			options.MinIdleConns = 0
		}
		_ = redis.NewUniversalClient(options).Close()
	})
}
