package httplimit

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
)

func newProxies(t testing.TB, header string, trusted ...string) *Proxies {
	t.Helper()
	p, err := NewProxies(header, trusted...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func requestFrom(remote string, header string, lines ...string) *http.Request {
	r := &http.Request{RemoteAddr: remote, Header: http.Header{}}
	for _, line := range lines {
		r.Header.Add(header, line)
	}
	return r
}

func TestClientBehindProxies(t *testing.T) {
	const xff, fwd = "X-Forwarded-For", "Forwarded"
	for name, c := range map[string]struct {
		header, remote string
		lines          []string
		want           string
	}{
		"no proxy":                          {xff, "203.0.113.9:1", []string{"1.1.1.1"}, "203.0.113.9"},
		"no header":                         {xff, "10.0.0.1:1", nil, "10.0.0.1"},
		"one proxy":                         {xff, "10.0.0.1:1", []string{"203.0.113.9"}, "203.0.113.9"},
		"client lies":                       {xff, "10.0.0.1:1", []string{"1.1.1.1, 203.0.113.9"}, "203.0.113.9"},
		"client lies that it is a proxy":    {xff, "10.0.0.1:1", []string{"1.1.1.1, 10.0.0.7, 203.0.113.9"}, "203.0.113.9"},
		"client lies in a line of its own":  {xff, "10.0.0.1:1", []string{"1.1.1.1", "203.0.113.9"}, "203.0.113.9"},
		"two proxies":                       {xff, "10.0.0.1:1", []string{"1.1.1.1, 203.0.113.9, 10.0.0.2"}, "203.0.113.9"},
		"two proxies, a line each":          {xff, "10.0.0.1:1", []string{"1.1.1.1", "203.0.113.9", "10.0.0.2"}, "203.0.113.9"},
		"all are proxies":                   {xff, "10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		"begins with a comma":               {xff, "10.0.0.1:1", []string{",203.0.113.9"}, "203.0.113.9"},
		"rubbish by the client":             {xff, "10.0.0.1:1", []string{`"\,;=, 203.0.113.9`}, "203.0.113.9"},
		"rubbish by the proxy":              {xff, "10.0.0.1:1", []string{"1.1.1.1, unknown"}, "10.0.0.1"},
		"nothing by the proxy":              {xff, "10.0.0.1:1", []string{"1.1.1.1, "}, "10.0.0.1"},
		"rubbish behind the second proxy":   {xff, "10.0.0.1:1", []string{"1.1.1.1, -, 10.0.0.2"}, "10.0.0.2"},
		"with port":                         {xff, "10.0.0.1:1", []string{"203.0.113.9:4711"}, "203.0.113.9"},
		"IPv6":                              {xff, "10.0.0.1:1", []string{"2001:db8::9"}, "2001:db8::9"},
		"IPv6 in brackets, with port":       {xff, "10.0.0.1:1", []string{"[2001:db8::9]:4711"}, "2001:db8::9"},
		"IPv6 in brackets":                  {xff, "10.0.0.1:1", []string{"[2001:db8::9]"}, "2001:db8::9"},
		"an open bracket":                   {xff, "10.0.0.1:1", []string{"1.1.1.1, [2001:db8::9"}, "10.0.0.1"},
		"rubbish after the bracket":         {xff, "10.0.0.1:1", []string{"[2001:db8::9]4711"}, "10.0.0.1"},
		"rubbish for the bracket's port":    {xff, "10.0.0.1:1", []string{"[2001:db8::9]:x"}, "10.0.0.1"},
		"IPv4 in brackets":                  {xff, "10.0.0.1:1", []string{"[1.1.1.1]"}, "10.0.0.1"},
		"the largest port":                  {xff, "10.0.0.1:1", []string{"203.0.113.9:65535"}, "203.0.113.9"},
		"too long for a port":               {xff, "10.0.0.1:1", []string{"203.0.113.9:100000"}, "10.0.0.1"},
		"no port after the colon":           {xff, "10.0.0.1:1", []string{"203.0.113.9:"}, "10.0.0.1"},
		"rubbish for a port":                {xff, "10.0.0.1:1", []string{"203.0.113.9:1x"}, "10.0.0.1"},
		"IPv6 proxy":                        {xff, "[2001:db8:ff::1]:1", []string{"203.0.113.9"}, "203.0.113.9"},
		"IPv4 proxy on a socket for both":   {xff, "[::ffff:10.0.0.1]:1", []string{"203.0.113.9"}, "203.0.113.9"},
		"IPv4 inside IPv6":                  {xff, "10.0.0.1:1", []string{"1.1.1.1, ::ffff:203.0.113.9"}, "203.0.113.9"},
		"proxy's IPv4 inside IPv6":          {xff, "10.0.0.1:1", []string{"203.0.113.9, ::ffff:10.0.0.2"}, "203.0.113.9"},
		"a zone is nothing to tell apart":   {xff, "10.0.0.1:1", []string{"fe80::1%x"}, "fe80::1"},
		"another header is not read":        {xff, "10.0.0.1:1", nil, "10.0.0.1"},
		"Unix socket":                       {xff, "@", []string{"203.0.113.9"}, "203.0.113.9"},
		"Unix socket, no header":            {xff, "@", nil, "invalid IP"},
		"Forwarded":                         {fwd, "10.0.0.1:1", []string{"for=1.1.1.1, for=203.0.113.9;proto=https;by=10.0.0.1"}, "203.0.113.9"},
		"Forwarded, no spaces":              {fwd, "10.0.0.1:1", []string{"for=1.1.1.1,for=203.0.113.9,for=10.0.0.2"}, "203.0.113.9"},
		"Forwarded, space before a value":   {fwd, "10.0.0.1:1", []string{"for= 1.1.1.1"}, "10.0.0.1"},
		"Forwarded, quotes never closed":    {fwd, "10.0.0.1:1", []string{`for="1.1.1.1`}, "10.0.0.1"},
		"Forwarded, quoted":                 {fwd, "10.0.0.1:1", []string{`For="[2001:db8::9]:4711"`}, "2001:db8::9"},
		"Forwarded, quoted comma":           {fwd, "10.0.0.1:1", []string{`for=203.0.113.9;ext="a, for=1.1.1.1", for=10.0.0.2`}, "203.0.113.9"},
		"Forwarded, escapes":                {fwd, "10.0.0.1:1", []string{`for=203.0.113.9;ext="a\", \\", for="10.0.0\.2"`}, "203.0.113.9"},
		"Forwarded, escaped quotes":         {fwd, "10.0.0.1:1", []string{`for=203.0.113.9;ext="a, \"b", for=10.0.0.2`}, "203.0.113.9"},
		"Forwarded, escaped at its end":     {fwd, "10.0.0.1:1", []string{`for=1.1.1.1, for=203.0.113.9;ext="\\\"", for=10.0.0.2`}, "203.0.113.9"},
		"Forwarded, open quotes":            {fwd, "10.0.0.1:1", []string{`for=", for=203.0.113.9`}, "203.0.113.9"},
		"Forwarded, open quotes, and lines": {fwd, "10.0.0.1:1", []string{`for="`, `for=203.0.113.9`, `for=10.0.0.2`}, "203.0.113.9"},
		"Forwarded, hidden":                 {fwd, "10.0.0.1:1", []string{"for=1.1.1.1, for=_hidden"}, "10.0.0.1"},
		"Forwarded, hidden port":            {fwd, "10.0.0.1:1", []string{`for="203.0.113.9:_x"`}, "203.0.113.9"},
		"Forwarded, two fors":               {fwd, "10.0.0.1:1", []string{"for=203.0.113.9;for=1.1.1.1"}, "10.0.0.1"},
		"Forwarded, no for":                 {fwd, "10.0.0.1:1", []string{"for=1.1.1.1, proto=https"}, "10.0.0.1"},
		"Forwarded, nothing":                {fwd, "10.0.0.1:1", []string{"for=1.1.1.1, "}, "10.0.0.1"},
		"Forwarded, empty pairs":            {fwd, "10.0.0.1:1", []string{";; for=203.0.113.9 ;;"}, "203.0.113.9"},
		"Forwarded, no semicolon":           {fwd, "10.0.0.1:1", []string{"for=1.1.1.1 by=10.0.0.1"}, "10.0.0.1"},
		"Forwarded, no value":               {fwd, "10.0.0.1:1", []string{"for=1.1.1.1;proto"}, "10.0.0.1"},
		"Forwarded, an empty value":         {fwd, "10.0.0.1:1", []string{"for=1.1.1.1;proto="}, "10.0.0.1"},
		"Forwarded, an empty name":          {fwd, "10.0.0.1:1", []string{"for=1.1.1.1;=https"}, "10.0.0.1"},
		"Forwarded, no token for a name":    {fwd, "10.0.0.1:1", []string{`for=1.1.1.1;"proto"=https`}, "10.0.0.1"},
		"Forwarded, ends in an escape":      {fwd, "10.0.0.1:1", []string{`for=1.1.1.1;ext="a\`}, "10.0.0.1"},
		"Forwarded, rubbish after quotes":   {fwd, "10.0.0.1:1", []string{`for="1.1.1.1"x`}, "10.0.0.1"},
		"Forwarded, rubbish after the for":  {fwd, "10.0.0.1:1", []string{"for=203.0.113.9 1.1.1.1"}, "10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProxies(t, c.header, "10.0.0.0/8", "2001:db8:ff::/48", "unix")
			r := requestFrom(c.remote, c.header, c.lines...)
			r.Header.Set("X-Real-Ip", "1.1.1.1")
			if got := p.Client(r).String(); got != c.want {
				t.Errorf("client is %s, want %s", got, c.want)
			}
		})
	}
}

// If the origin of a request is unknown, the client is unknown, unless Unix sockets are trusted.
func TestUnixSocketsAreNotTrustedUnlessStated(t *testing.T) {
	p := newProxies(t, "X-Forwarded-For", "10.0.0.0/8")
	for _, remote := range []string{"@", "", "unknown"} {
		if client := p.Client(requestFrom(remote, "X-Forwarded-For", "203.0.113.9")); client.IsValid() {
			t.Errorf("from %q: the client is %v", remote, client)
		}
	}
}

// Only a connection over a Unix socket is trusted as one. A TCP connection is not, even if something
// before the middleware has overwritten its address, for example with the address that a client claims
// to have.
func TestUnixSocketsAreTrusted(t *testing.T) {
	p := newProxies(t, "X-Forwarded-For", "unix")
	clients := make(chan netip.Addr, 1)
	serve := func(network, address string) *http.Client {
		t.Helper()
		listener, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if claimed := r.Header.Get("X-Real-Ip"); claimed != "" {
				r.RemoteAddr = claimed
			}
			clients <- p.Client(r)
		})}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, listener.Addr().String())
		}}}
	}
	folder, err := os.MkdirTemp("", "unix") // the path of t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	tcp, unix := serve("tcp", "127.0.0.1:0"), serve("unix", filepath.Join(folder, "s"))
	for _, c := range []struct {
		client        *http.Client
		claimed, want string
	}{
		{unix, "", "203.0.113.9"},
		{tcp, "", "127.0.0.1"},
		{tcp, "unknown", "invalid IP"},
		{tcp, "@", "invalid IP"},
	} {
		request := requestFrom("", "X-Forwarded-For", "203.0.113.9")
		request.URL = &url.URL{Scheme: "http", Host: "a"}
		if c.claimed != "" {
			request.Header.Set("X-Real-Ip", c.claimed)
		}
		response, err := c.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := (<-clients).String(); got != c.want {
			t.Errorf("claimed to be %q: client is %s, want %s", c.claimed, got, c.want)
		}
	}
}

func TestProxiesAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		header  string
		trusted []string
	}{
		"none":              {"X-Forwarded-For", nil},
		"no header":         {"", []string{"10.0.0.1"}},
		"not a header":      {"X Forwarded", []string{"10.0.0.1"}},
		"not an address":    {"Forwarded", []string{"proxy.example"}},
		"not a prefix":      {"Forwarded", []string{"10.0.0.0/33"}},
		"everyone":          {"Forwarded", []string{"0.0.0.0/0"}},
		"everyone, IPv6":    {"Forwarded", []string{"::/0"}},
		"more than IPv4":    {"Forwarded", []string{"::ffff:0.0.0.0/80"}},
		"everyone, as IPv6": {"Forwarded", []string{"::ffff:0.0.0.0/96"}},
		"everyone, NAT64":   {"Forwarded", []string{"64:ff9b::/96"}},
	} {
		if _, err := NewProxies(c.header, c.trusted...); !errors.Is(err, limit.ErrInvalidOption) {
			t.Errorf("%s: error %v, want ErrInvalidOption", name, err)
		}
	}
	p := newProxies(t, "Forwarded", "::ffff:10.0.0.0/104", "::ffff:192.0.2.1", "198.51.100.77/24", "64:ff9b::203.0.113.0/120")
	for address, trusted := range map[string]bool{
		"10.200.0.1": true, "11.0.0.1": false, "192.0.2.1": true, "192.0.2.2": false, "198.51.100.1": true, "198.51.101.1": false,
		"203.0.113.7": true, "203.0.114.7": false,
	} {
		if p.trusts(netip.MustParseAddr(address)) != trusted {
			t.Errorf("%s is trusted: %v", address, !trusted)
		}
	}
}

// A token may contain exactly the characters that RFC 9110 lists.
func TestTokens(t *testing.T) {
	const allowed = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for r := range rune(300) {
		if isToken(string(r)) != strings.ContainsRune(allowed, r) {
			t.Errorf("%q is a token: %v", r, isToken(string(r)))
		}
	}
}

// Whatever a client writes, the client's address is the one that the proxy appends.
func FuzzNoHeaderHidesTheClient(f *testing.F) {
	for _, seed := range []string{"", "1.1.1.1", `for="`, `for="\`, `\"`, `for=1.1.1.1;x="a,b"`, "10.0.0.3", `",",`, "for=10.0.0.3, "} {
		f.Add(seed, "203.0.113.9", true)
		f.Add(seed, "2001:db8::9", false)
	}
	f.Fuzz(func(t *testing.T, written, from string, sameLine bool) {
		client, err := netip.ParseAddr(from)
		if err != nil || client.Zone() != "" || strings.ContainsAny(written, "\r\n\x00") {
			return
		}
		forwarded := "for=" + from
		if client.Is6() {
			forwarded = `for="[` + from + `]"`
		}
		for header, own := range map[string]string{"X-Forwarded-For": from, "Forwarded": forwarded} {
			p := newProxies(t, header, "10.0.0.0/8")
			want := client.Unmap()
			if nat64 := netip.MustParsePrefix("64:ff9b::/96"); p.trusts(want) || nat64.Contains(want) {
				return
			}
			lines := []string{written, own}
			if sameLine {
				lines = []string{written + ", " + own}
			}
			if got := p.Client(requestFrom("10.0.0.1:80", header, lines...)); got != want {
				t.Errorf("%s: %q: client is %v, want %v", header, lines, got, want)
			}
			if got := p.Client(requestFrom("203.0.113.77:80", header, lines...)); got != netip.MustParseAddr("203.0.113.77") {
				t.Errorf("%s: %q, not from a proxy: client is %v", header, lines, got)
			}
		}
	})
}

// Any bytes result in an address or in none, and the key of an address is short.
func FuzzForwarded(f *testing.F) {
	for _, seed := range []string{"for=1.1.1.1", `for="[::1]:1";by=_x`, `for="\"`, ";;for=a", "for==", `"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for rest, more := text, true; more; {
			before, element, again := cutLastElement(rest)
			if again && before+","+element != rest || !again && element != rest {
				t.Fatalf("%q was cut into %q and %q", rest, before, element)
			}
			rest, more = before, again
			if node := forwardedFor(element); len(node) > len(element) {
				t.Fatalf("%q gave %q", element, node)
			}
		}
		if addr, ok := parseNode(text); ok {
			if key := AddressKey(addr); key == "" || len(key) > 43 || addr.Zone() != "" {
				t.Fatalf("%q gave %v and the key %q", text, addr, key)
			}
		}
		if key := ClientAddress(&http.Request{RemoteAddr: text}); len(key) > 43 {
			t.Fatalf("%q gave the key %q", text, key)
		}
	})
}
