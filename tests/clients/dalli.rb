# SPDX-License-Identifier: Apache-2.0
# Drives Dalli against one server: every command of its client. Called by test_dalli.py with a JSON
# document of settings; prints "ok" at the end, or the first thing that was wrong.
require 'dalli'
require 'json'
require 'logger'

# Debian's Dalli 3.0.6 asks the socket for its server after a request of many keys, and its socket
# with TLS has none.
Dalli::Socket::SSLSocket.class_eval do
  def server = io.server unless method_defined?(:server)
end

SETTINGS = JSON.parse(ARGV.fetch(0))
Dalli.logger = Logger.new($stderr, level: Logger::ERROR)

def same(wanted, seen, what)
  raise "#{what}: #{wanted.inspect} is wanted, #{seen.inspect} was seen" unless wanted == seen
end

# Dalli's words for "not done" differ from command to command.
def undone(seen, what)
  raise "#{what}: #{seen.inspect} was seen" unless [nil, false, 0].include?(seen)
end

def client(more = {})
  options = { socket_timeout: 300, socket_max_failures: 0 }
  options[:username] = SETTINGS['username'] if SETTINGS['username']
  options[:password] = SETTINGS['password'] if SETTINGS['password']
  if SETTINGS['ca']
    context = OpenSSL::SSL::SSLContext.new
    context.ca_file = SETTINGS['ca']
    context.verify_mode = OpenSSL::SSL::VERIFY_PEER
    context.verify_hostname = true
    options[:ssl_context] = context
  end
  Dalli::Client.new(SETTINGS['server'], options.merge(more))
end

# Asks the test to move what was stored to flash; it answers with a line.
def settle
  return unless SETTINGS['settle']

  $stdout.puts 'settle'
  $stdout.flush
  $stdin.gets
end

RAW = { raw: true }.freeze

def simple(dalli)
  same nil, dalli.get('none'), 'get of nothing'
  values = { 'text' => 'a', 'number' => 17, 'list' => [1, nil, { 'a' => :b }], 'umlaut' => 'schön', 'empty' => '' }
  values.each { |key, value| raise "set #{key}" unless dalli.set(key, value) }
  settle
  values.each { |key, value| same value, dalli.get(key), "get #{key}" }
  same values, dalli.get_multi(*values.keys, 'none'), 'get_multi'
  undone dalli.add('text', 'b'), 'add of something'
  raise 'add of nothing' unless dalli.add('added', 'b')

  undone dalli.replace('none', 'b'), 'replace of nothing'
  raise 'replace of something' unless dalli.replace('text', 'c')

  same 'c', dalli.get('text'), 'what replace left'
  same true, dalli.delete('text'), 'delete of something'
  undone dalli.delete('text'), 'delete of nothing'
  same 'made', dalli.fetch('text') { 'made' }, 'fetch of nothing'
  same 'made', dalli.fetch('text') { 'again' }, 'fetch of something'
end

def sizes(dalli)
  random = Random.new(SETTINGS['seed'])
  values = [0, 1, 100, 4000, 4096, 4097, 65_536, 300_000, 1_000_000].to_h { |size| ["size#{size}", random.bytes(size)] }
  values.each { |key, value| raise "set #{key}" unless dalli.set(key, value, nil, RAW) }
  settle
  values.each { |key, value| same value, dalli.get(key, RAW), key }
  same values, dalli.get_multi(*values.keys), 'get_multi of sizes'
end

def quiet(dalli)
  keys = (0...200).map { |n| "quiet#{n}" }
  dalli.multi { keys.each { |key| dalli.set(key, key * 30) } }
  same keys.to_h { |key| [key, key * 30] }, dalli.get_multi(keys), 'quiet sets'
  settle
  dalli.multi { keys.each { |key| dalli.delete(key) } }
  same({}, dalli.get_multi(keys), 'quiet deletes')
end

def changes(dalli)
  dalli.set('joined', 'mid', nil, RAW)
  settle
  raise 'append' unless dalli.append('joined', '-end')

  settle
  raise 'prepend' unless dalli.prepend('joined', 'start-')

  same 'start-mid-end', dalli.get('joined', RAW), 'append and prepend'
  same nil, dalli.incr('counter', 1), 'incr of nothing'
  same 5, dalli.incr('counter', 1, 0, 5), 'incr with a default'
  settle
  same 12, dalli.incr('counter', 7), 'incr'
  same 0, dalli.decr('counter', 20), 'decr stops at 0'
  same (1 << 64) - 1, dalli.incr('counter', (1 << 64) - 1), 'incr to the most'
  same 0, dalli.incr('counter', 1), 'incr wraps'
  dalli.set('touched', 'v', 1000)
  settle
  same true, dalli.touch('touched', 2000), 'touch of something'
  same nil, dalli.touch('none', 2000), 'touch of nothing'
  same 'v', dalli.gat('touched', 3000), 'gat of something'
  same nil, dalli.gat('none', 3000), 'gat of nothing'
  dalli.set('short', 'v', 1)
  settle
  # The server's clock decides: the item goes when that does.
  sleep 0.1 until dalli.get('short').nil?
end

def cas(dalli)
  dalli.set('cas', 1)
  settle
  value, token = dalli.get_cas('cas')
  same 1, value, 'get_cas'
  raise 'cas of something' unless dalli.cas('cas') { |seen| seen + 1 }

  undone dalli.set_cas('cas', 9, token), 'set_cas with an old token'
  settle
  _, token = dalli.get_cas('cas')
  raise 'replace_cas' unless dalli.replace_cas('cas', 3, token)

  undone dalli.delete_cas('cas', token), 'delete_cas with an old token'
  same 3, dalli.get('cas'), 'what was left'
  _, token = dalli.get_multi_cas('cas')['cas']
  same true, dalli.delete_cas('cas', token), 'delete_cas'
  same nil, dalli.cas('cas') { raise 'nothing is there' }, 'cas of nothing'
end

def compressed
  dalli = client(compress: true, compression_min_size: 100)
  value = 'long ' * 10_000
  raise 'set' unless dalli.set('compressed', value)

  settle
  same value, dalli.get('compressed'), 'compressed'
  spaced = client(namespace: 'shop')
  raise 'set' unless spaced.set('key', 1)

  same 1, client.get('shop:key'), 'namespace'
end

def tells(dalli)
  raise 'alive!' unless dalli.alive!

  [nil, :items, :slabs, :settings].each do |type|
    told = dalli.stats(type).values
    raise "stats #{type}: #{told}" unless told.size == 1 && told[0].is_a?(Hash) && !told[0].empty?
  end
  raise 'version' unless dalli.version.values[0].match?(/\A\d+\.\d+/)

  same [true], dalli.reset_stats.map { |done| !done.nil? }, 'reset_stats'
end

begin
  dalli = client
  if SETTINGS['refused']
    begin
      dalli.get('none')
      raise 'the server let it in'
    rescue Dalli::DalliError => e
      puts "refused: #{e.message}"
    end
  else
    simple(dalli)
    sizes(dalli)
    quiet(dalli)
    changes(dalli)
    cas(dalli)
    compressed
    tells(dalli)
    dalli.flush
    same nil, dalli.get('added'), 'get after flush'
    dalli.close
    puts 'ok'
  end
rescue StandardError => e
  puts "#{e.class}: #{e.message} at #{e.backtrace.find { |line| line.include?('dalli.rb') }}"
end
