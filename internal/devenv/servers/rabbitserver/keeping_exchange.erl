%% Types of exchanges that answer NO_ROUTE for messages that they take, as two plugins do. They stand for these plugins in tests.
-module(keeping_exchange).
-behaviour(rabbit_exchange_type).
-include_lib("rabbit_common/include/rabbit.hrl").
-include_lib("rabbit_common/include/rabbit_framing.hrl").
-export([add/0]).
-export([description/0, serialise_events/0, validate/1, validate_binding/2, create/2, delete/2, delete/3, policy_changed/2,
         add_binding/3, remove_bindings/2, remove_bindings/3, assert_args_equivalence/2, info/1, info/2]).
%% RabbitMQ 4 has messages of another form than versions before.
-ifdef(message_containers).
-export([route/3]).
-else.
-export([route/2]).
-endif.

add() ->
    [ok = rabbit_registry:register(exchange, Type, ?MODULE) || Type <- [<<"x-delayed-message">>, <<"x-message-deduplication">>]].

-ifdef(message_containers).
route(X, Message, _) -> route_as(X, Message).
header(Name, Message) -> mc:x_header(Name, Message).
deliver(Queues, Message) -> rabbit_queue_type:deliver(rabbit_amqqueue:lookup_many(Queues), Message, #{}, stateless).
-else.
route(X, D) -> route_as(X, D).
header(Name, #delivery{message = #basic_message{content = Content}}) ->
    #'P_basic'{headers = Headers} = (rabbit_binary_parser:ensure_content_decoded(Content))#content.properties,
    rabbit_misc:table_lookup(Headers, Name).
deliver(Queues, D) -> rabbit_amqqueue:deliver(rabbit_amqqueue:lookup(Queues), D#delivery{mandatory = false, confirm = false, msg_seq_no = undefined}).
-endif.

%% Keeps a message with a delay, and gives it to the queues later.
route_as(#exchange{name = Name, type = 'x-delayed-message'}, Message) ->
    case header(<<"x-delay">>, Message) of
        undefined -> bound(Name);
        {_, Delay} ->
            spawn(fun() ->
                timer:sleep(Delay),
                deliver(bound(Name), Message)
            end),
            []
    end;
%% Drops a message whose header it has seen.
route_as(#exchange{name = Name}, Message) ->
    Key = {?MODULE, Name, header(<<"x-deduplication-header">>, Message)},
    case persistent_term:get(Key, false) of
        true -> [];
        false ->
            persistent_term:put(Key, true),
            bound(Name)
    end.

bound(Name) -> rabbit_router:match_routing_key(Name, ['_']).

description() -> [{description, <<"keeps or drops messages">>}].
serialise_events() -> false.
validate(_) -> ok.
validate_binding(_, _) -> ok.
create(_, _) -> ok.
delete(_, _) -> ok.
delete(_, _, _) -> ok.
policy_changed(_, _) -> ok.
add_binding(_, _, _) -> ok.
remove_bindings(_, _) -> ok.
remove_bindings(_, _, _) -> ok.
assert_args_equivalence(X, Args) -> rabbit_exchange:assert_args_equivalence(X, Args).
info(_) -> [].
info(_, _) -> [].
