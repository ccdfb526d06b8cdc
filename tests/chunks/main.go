// SPDX-License-Identifier: Apache-2.0

// Chunks of logs as Loki stores them, by the memcached client that Loki uses: `chunks HOST:PORT`.
//
// Eight goroutines store values of 256 KiB to 2 MiB and read them back, one by one and many at a
// time. A difference ends it.
package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/grafana/gomemcache/memcache"
)

const writers, chunks = 8, 12

// The value of a chunk, which its number gives.
func chunk(number int) []byte {
	sizes := []int{256 << 10, 512 << 10, 1 << 20, 3 << 19, 2 << 20}
	value := make([]byte, sizes[number%len(sizes)])
	source := rand.NewChaCha8([32]byte{byte(number), byte(number >> 8)})
	source.Read(value)
	return value
}

func key(number int) string {
	return fmt.Sprintf("fake/4f3c9e%08x:18%06x:19%06x", number, number, number)
}

func run(client *memcache.Client, writer int) error {
	var keys []string
	for n := range chunks {
		number := writer*chunks + n
		keys = append(keys, key(number))
		item := memcache.Item{Key: key(number), Value: chunk(number)}
		if err := client.Set(&item); err != nil {
			return fmt.Errorf("set of %d bytes: %w", len(item.Value), err)
		}
	}
	for n, name := range keys {
		item, err := client.Get(name)
		if err != nil {
			return fmt.Errorf("get: %w", err)
		}
		if !bytes.Equal(item.Value, chunk(writer*chunks+n)) {
			return fmt.Errorf("%s has other bytes", name)
		}
	}
	found, err := client.GetMulti(context.Background(), keys)
	if err != nil {
		return fmt.Errorf("get of many: %w", err)
	}
	for n, name := range keys {
		item := found[name]
		if item == nil || !bytes.Equal(item.Value, chunk(writer*chunks+n)) {
			return fmt.Errorf("%s is absent or has other bytes among many", name)
		}
	}
	return nil
}

func main() {
	client := memcache.New(os.Args[1])
	// By default an answer may take 100 ms, and so may a connect.
	client.Timeout, client.ConnectTimeout = 300e9, 300e9
	client.MaxIdleConns = writers
	errors := make([]error, writers)
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() { errors[writer] = run(client, writer) })
	}
	all.Wait()
	for _, err := range errors {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fmt.Println(writers*chunks, "chunks came back")
}
