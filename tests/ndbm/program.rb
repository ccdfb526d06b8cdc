# SPDX-License-Identifier: Apache-2.0
# A program of the kind that people have, with all methods of DBM. It prints what it finds, in an
# order that does not depend on the library.
require 'dbm'

def show(db)
  puts db.to_hash.sort.map { |k, v| "#{k}=#{v}" }.join(' ')
end

File.umask(022)
DBM.open('proof', 0644, DBM::NEWDB) do |db|
  puts format('%04o', File.stat('proof.pag').mode & 07777)
  puts db.empty?, db.length
  (1..20).each { |n| db[n.to_s] = (n * n).to_s }
  db.store('', 'the empty key')
  db['empty'] = ''
  show db
  puts db['7'], db['nothing'].inspect, db.fetch('nothing', 'else'), db.fetch('nothing') { |k| k.upcase }
  puts db.key('49'), db.key?('7'), db.has_key?('nothing'), db.value?('49'), db.has_value?('nothing')
  puts db.values_at('1', '2', 'nothing').inspect
  puts db.keys.sort.join(','), db.values.sort.join(',')
  pairs = []
  db.each_pair { |k, v| pairs << [k, v, db[k]] }
  puts pairs.sort.inspect
  puts db.select { |k, v| v.start_with?('1') }.sort.inspect
  puts db.delete('7').inspect, db.delete('nothing').inspect
  db.delete_if { |k, _| k.start_with?('1') }
  show db
  db.reject! { |_, v| v == '4' }
  show db
  puts db.reject { |_, v| v == '9' }.sort.inspect
  db.update('new' => 'one', '3' => 'three')
  show db
  puts db.invert.sort.inspect
  shifted = db.shift
  puts shifted.length, db.length
  db.replace('q' => 'w', 'e' => 'r')
  show db
end

DBM.open('proof', 0644, DBM::READER) do |db|
  show db
  %w[store delete].each do |call|
    begin
      call == 'store' ? db.store('x', 'y') : db.delete('q')
      puts 'taken'
    rescue StandardError
      puts 'refused'
    end
  end
end

db = DBM.open('proof', 0644, DBM::WRITER)
db.clear
puts db.length
1000.times { |n| db[n.to_s] = 'x' * n }
puts db.length, db['999'].length
db.close
puts db.closed?
begin
  db['x']
rescue DBMError, RuntimeError => error
  puts error.message
end
puts DBM.open('absent', nil).inspect
puts 'done'
