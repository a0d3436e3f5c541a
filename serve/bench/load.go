package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// connection is an HTTP/2 connection with callers in a closed loop: each caller asks again as soon as it has its
// answer. The connection does as little as possible, because a gRPC client would take as much processor time as the
// server that is measured.
type connection struct {
	conn    net.Conn
	out     *bufio.Writer
	framer  *http2.Framer
	headers *hpack.Encoder
	block   bytes.Buffer
	next    uint32 // stream
	callers map[uint32]*caller

	messages [][]byte // requests to choose from
	random   *rand.Rand
	unread   uint32 // bytes of data since the window was last opened

	took   []time.Duration
	errors int
}

// caller sends a request and waits for the answer.
type caller struct {
	asked    time.Time
	answered bool // the answer has a message
}

func connect(address string, messages [][]byte, seed uint64) (*connection, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	c := &connection{conn: conn, out: bufio.NewWriterSize(conn, 64<<10), next: 1, callers: make(map[uint32]*caller),
		messages: messages, random: rand.New(rand.NewPCG(seed, 1))}
	c.framer = http2.NewFramer(c.out, bufio.NewReaderSize(conn, 64<<10))
	c.framer.SetReuseFrames()
	c.headers = hpack.NewEncoder(&c.block)
	if _, err := io.WriteString(c.out, http2.ClientPreface); err != nil {
		return nil, err
	}
	if err := c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}); err != nil {
		return nil, err
	}
	if err := c.framer.WriteWindowUpdate(0, 1<<30); err != nil {
		return nil, err
	}
	return c, c.out.Flush()
}

// run runs the callers until the given time, and waits for the last answers.
func (c *connection) run(callers int, until time.Time) error {
	for range callers {
		if err := c.ask(&caller{}); err != nil {
			return err
		}
	}
	if err := c.out.Flush(); err != nil {
		return err
	}
	for len(c.callers) > 0 {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return err
		}
		if err := c.handle(frame, until); err != nil {
			return err
		}
		if err := c.out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) ask(who *caller) error {
	c.block.Reset()
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"},
		{Name: ":path", Value: "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"},
		{Name: ":authority", Value: "bench"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	} {
		if err := c.headers.WriteField(field); err != nil {
			return err
		}
	}
	stream := c.next
	c.next += 2
	*who = caller{asked: time.Now()}
	c.callers[stream] = who
	if err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.block.Bytes(), EndHeaders: true}); err != nil {
		return err
	}
	return c.framer.WriteData(stream, true, c.messages[c.random.IntN(len(c.messages))])
}

func (c *connection) handle(frame http2.Frame, until time.Time) error {
	stream := frame.Header().StreamID
	ended := frame.Header().Flags.Has(http2.FlagDataEndStream)
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		return c.framer.WriteSettingsAck()
	case *http2.PingFrame:
		if f.IsAck() {
			return nil
		}
		return c.framer.WritePing(true, f.Data)
	case *http2.GoAwayFrame:
		return fmt.Errorf("the server goes away: %v %s", f.ErrCode, f.DebugData())
	case *http2.DataFrame:
		if c.unread += f.Length; c.unread > 1<<20 {
			if err := c.framer.WriteWindowUpdate(0, c.unread); err != nil {
				return err
			}
			c.unread = 0
		}
		if who := c.callers[stream]; who != nil && len(f.Data()) > 5 {
			who.answered = true
		}
	case *http2.HeadersFrame:
	case *http2.RSTStreamFrame:
		ended = true
	default:
		return nil
	}
	who := c.callers[stream]
	if !ended || who == nil {
		return nil
	}
	delete(c.callers, stream)
	now := time.Now()
	c.took = append(c.took, now.Sub(who.asked))
	if !who.answered {
		c.errors++
	}
	if now.After(until) {
		return nil
	}
	return c.ask(who)
}

// message returns a request in gRPC's framing.
func message(m proto.Message) ([]byte, error) {
	text, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))
	return append(framed, text...), nil
}
